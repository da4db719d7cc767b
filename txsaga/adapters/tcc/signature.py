"""
Headers of a call to a service: ids, phase and a signature over all that counts; both ends use this.

The signature covers method, path, ids, phase and body: none of them can be changed, or used for another branch. The
same call may come twice, that is promised; whoever answers does nothing the second time. The secret is never sent.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from txsaga.errors import ConfigError, SignatureRefused, UnknownTransaction
from txsaga.model.arguments import check_kind
from txsaga.model.branch import PREFIX, BranchId

TRANSACTION, BRANCH, ATTEMPT, PHASE = "Txsaga-Transaction", "Txsaga-Branch", "Txsaga-Attempt", "Txsaga-Phase"
IDEMPOTENCY, SIGNATURE = "Idempotency-Key", "Txsaga-Signature"
SHORTEST = 16
Secret = str | bytes


class Phase(StrEnum):
    """What a service is asked to do."""

    TRY = "try"
    CONFIRM = "confirm"
    CANCEL = "cancel"


class Called(NamedTuple):
    """A call whose signature is right."""

    branch: BranchId
    phase: Phase

    @property
    def id(self) -> str:
        """The name under which the service keeps what it reserves."""
        return self.branch.gid


def key_of(secret: Secret) -> bytes:
    """Return a secret as bytes; one that can be guessed is refused."""
    check_kind(secret, (str, bytes), "the secret", "give text or bytes")
    key = secret.encode() if isinstance(secret, str) else secret
    if len(key) < SHORTEST:
        raise ConfigError(f"the secret has {len(key)} bytes; give at least {SHORTEST}, drawn at random")
    return key


def signed(called: Called, path: str, body: bytes, secret: Secret, *, method: str = "POST") -> dict[str, str]:
    """Return the headers of a call."""
    branch = called.branch
    return {
        TRANSACTION: branch.transaction,
        BRANCH: str(branch.number),
        ATTEMPT: str(branch.attempt),
        PHASE: called.phase,
        IDEMPOTENCY: f"{branch.gid}:{called.phase}",
        SIGNATURE: _signature(called, method, path, body, key_of(secret)),
    }


def verify(headers: Mapping[str, str], body: bytes, secret: Secret, *, path: str, method: str = "POST") -> Called:
    """Return what is asked for; `SignatureRefused` unless it was signed with the secret.

    `path` is the path that the caller used, with its query.
    """
    given = {name.lower(): value for name, value in headers.items()}
    try:
        transaction, number, attempt, phase, signature = (
            given[name.lower()] for name in (TRANSACTION, BRANCH, ATTEMPT, PHASE, SIGNATURE)
        )
        called = Called(BranchId.parse(f"{PREFIX}:{transaction}:{number}.{attempt}"), Phase(phase))
    except (KeyError, ValueError, UnknownTransaction) as wrong:
        raise SignatureRefused(f"the request names no branch of txsaga: {wrong}") from None
    right = _signature(called, method, path, body, key_of(secret))
    if not hmac.compare_digest(right.encode(), signature.encode()):
        raise SignatureRefused("the request is not signed with the shared secret; answer it 401")
    return called


def _signature(called: Called, method: str, path: str, body: bytes, key: bytes) -> str:
    told = (method.upper(), path, called.branch.gid, called.phase, hashlib.sha256(body).hexdigest())
    return "v1=" + hmac.new(key, "\n".join(told).encode(), hashlib.sha256).hexdigest()
