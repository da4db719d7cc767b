"""
An HTTP service as a participant: three addresses, signed calls, the status is the answer.

    try       2xx yes; 409 no; anything else, or no answer: no, and it is cancelled
    confirm   2xx done; 404 unknown there: a hazard; anything else, or no answer: called again
    cancel    the same; but 404 means done if the try never arrived

The whole call ends within its time-out, however slowly the service answers. Redirects are not followed: the signature
covers one path. If an answer is lost, the same call is repeated.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import ssl
from collections.abc import Mapping
from enum import StrEnum
from threading import TIMEOUT_MAX
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from txsaga import errors
from txsaga.core.arguments import check_kind
from txsaga.flows.branch import PREFIX, BranchId, Finish
from txsaga.resources.capabilities import ResourceKind
from txsaga.resources.participant import HomeStore
from txsaga.resources.reservations import Reservation
from txsaga.resources.services import HttpReply, path_of, replied
from txsaga.resources.tcc import TccParticipant

TRANSACTION, BRANCH, ATTEMPT, PHASE = "Txsaga-Transaction", "Txsaga-Branch", "Txsaga-Attempt", "Txsaga-Phase"
IDEMPOTENCY, SIGNATURE = "Idempotency-Key", "Txsaga-Signature"
SHORTEST = 16
Secret = str | bytes


class CallPhase(StrEnum):
    """What a service is asked to do."""

    TRY = "try"
    CONFIRM = "confirm"
    CANCEL = "cancel"


class SignedCall(NamedTuple):
    """A call with a valid signature."""

    branch: BranchId
    phase: CallPhase

    @property
    def id(self) -> str:
        """The name under which the service stores its reservation."""
        return self.branch.gid


def key_of(secret: Secret) -> bytes:
    """Return a secret as bytes; refuse one that can be guessed."""
    check_kind(secret, (str, bytes), "the secret", "give text or bytes")
    key = secret.encode() if isinstance(secret, str) else secret
    if len(key) < SHORTEST:
        raise errors.ConfigError(f"the secret has {len(key)} bytes; give at least {SHORTEST}, drawn at random")
    return key


def signed(called: SignedCall, path: str, body: bytes, secret: Secret, *, method: str = "POST") -> dict[str, str]:
    """Return the headers of a call, with its signature."""
    branch = called.branch
    return {
        TRANSACTION: branch.transaction,
        BRANCH: str(branch.number),
        ATTEMPT: str(branch.attempt),
        PHASE: called.phase,
        IDEMPOTENCY: f"{branch.gid}:{called.phase}",
        SIGNATURE: _signature(called, method, path, body, key_of(secret)),
    }


def verify(headers: Mapping[str, str], body: bytes, secret: Secret, *, path: str, method: str = "POST") -> SignedCall:
    """Return the verified call; `SignatureRefused` unless it was signed with the secret.

    `path` is the path that the caller used, with its query.
    """
    given = {name.lower(): value for name, value in headers.items()}
    try:
        transaction, number, attempt, phase, signature = (
            given[name.lower()] for name in (TRANSACTION, BRANCH, ATTEMPT, PHASE, SIGNATURE)
        )
        called = SignedCall(BranchId.parse(f"{PREFIX}:{transaction}:{number}.{attempt}"), CallPhase(phase))
    except (KeyError, ValueError, errors.UnknownTransaction) as wrong:
        raise errors.SignatureRefused(f"the request names no branch of txsaga: {wrong}") from None
    right = _signature(called, method, path, body, key_of(secret))
    if not hmac.compare_digest(right.encode(), signature.encode()):
        raise errors.SignatureRefused("the request is not signed with the shared secret; answer it 401")
    return called


def _signature(called: SignedCall, method: str, path: str, body: bytes, key: bytes) -> str:
    told = (method.upper(), path, called.branch.gid, called.phase, hashlib.sha256(body).hexdigest())
    return "v1=" + hmac.new(key, "\n".join(told).encode(), hashlib.sha256).hexdigest()


TIMEOUT = 10.0
MORE = "give seconds, more than 0"
NO, UNKNOWN = 409, 404
BUSY = (408, 429)


class HttpService:
    """A service to register; its secret stays in this process."""

    def __init__(
        self,
        *,
        try_: str,
        confirm: str,
        cancel: str,
        secret: Secret,
        timeout: float = TIMEOUT,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        check_kind(timeout, (int, float), "timeout", MORE)
        if not 0 < timeout <= TIMEOUT_MAX:
            raise errors.ConfigError(f"timeout is {timeout!r}; {MORE}")
        self._urls = {CallPhase.TRY: _url(try_), CallPhase.CONFIRM: _url(confirm), CallPhase.CANCEL: _url(cancel)}
        self._key, self._timeout, self._tls = key_of(secret), timeout, tls

    def participant(self, name: str, store: HomeStore) -> TccParticipant:
        """Return the service as a participant."""
        place = " ".join(url.geturl() for url in self._urls.values())
        return TccParticipant(self, name=name, kind=ResourceKind.HTTP, place=place, store=store)

    def attempt(self, branch: BranchId, arguments: Mapping[str, object]) -> object:
        """Ask the service to reserve; return its answer, parsed if it is JSON."""
        try:
            answer = self._call(CallPhase.TRY, branch, arguments)
        except OSError as lost:
            raise errors.CommunicationFailed(f"the try of branch {branch.gid} was not answered: {lost}") from lost
        if answer.status == NO:
            raise errors.RolledBack(f"the service votes no on branch {branch.gid}: {answer}")
        if not answer.is_yes:
            raise errors.OtherReason(f"the try of branch {branch.gid} failed: {answer}")
        if answer.cut:
            raise errors.OtherReason(f"the try of branch {branch.gid} was answered with {answer.cut}")
        try:
            return json.loads(answer.body) if answer.body else None
        except ValueError:
            return answer.body

    def confirm(self, branch: BranchId, reserved: Reservation) -> Finish:
        """Ask the service to do what it reserved."""
        return self._told(CallPhase.CONFIRM, branch, reserved)

    def cancel(self, branch: BranchId, reserved: Reservation) -> Finish:
        """Ask the service to undo its reservation."""
        return self._told(CallPhase.CANCEL, branch, reserved)

    def _told(self, phase: CallPhase, branch: BranchId, reserved: Reservation) -> Finish:
        try:
            answer = self._call(phase, branch, reserved.arguments)
        except OSError as lost:
            raise errors.ResourceManagerFailed(f"{phase} of branch {branch.gid} was not answered: {lost}") from lost
        if answer.is_yes:
            return Finish.DONE
        if answer.status == UNKNOWN:
            return Finish.HAZARD if reserved.tried else Finish.DONE
        if answer.status >= 500 or answer.status in BUSY:
            raise errors.ResourceManagerFailed(f"{phase} of branch {branch.gid} failed: {answer}")
        raise errors.ResourceManagerError(f"{phase} of branch {branch.gid} was refused and will be repeated: {answer}")

    def _call(self, phase: CallPhase, branch: BranchId, arguments: Mapping[str, object]) -> HttpReply:
        url, body = self._urls[phase], json.dumps(arguments, sort_keys=True).encode()
        signature = signed(SignedCall(branch, phase), path_of(url), body, self._key)
        headers = {"Content-Type": "application/json", **signature}
        return replied("POST", url, body, headers, self._timeout, self._tls)


def _url(text: str) -> SplitResult:
    check_kind(text, str, "the address", "write https://host/path")
    try:
        url = urlsplit(text)
        _ = url.port
    except ValueError:
        raise errors.ConfigError("an address of the service can't be read; write https://host/path") from None
    if url.scheme not in ("http", "https") or not url.hostname or url.fragment or "@" in url.netloc:
        raise errors.ConfigError(
            "an address of the service must be https://host/path, without user, password and fragment; "
            "the secret signs each call"
        )
    return url
