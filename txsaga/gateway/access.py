"""
Who calls: the client's id, and its signature if the gateway has access keys.

The signature is that of RocketMQ's clients: HMAC-SHA1 of the date of the call, with the secret of the key.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from txsaga.errors import ConfigError
from txsaga.gateway.status import CallRefused, Code

CREDENTIAL = re.compile(r"\s*MQv2-HMAC-SHA1 .*?Credential=([^,/\s]+).*?Signature=([0-9A-Fa-f]+)")
CLIENT, DATE, AUTHORIZATION = "x-mq-client-id", "x-mq-date-time", "authorization"


def read_keys(path: Path) -> Mapping[str, str]:
    """Read a file of access keys: one `KEY:SECRET` a line."""
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as reason:
        raise ConfigError(f"the access keys can't be read: {reason}") from None
    keys: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        key, colon, secret = line.partition(":")
        if not line or line.startswith("#"):
            continue
        if not (key and colon and secret):
            raise ConfigError(f"line {number} of {path} is not KEY:SECRET")
        keys[key] = secret
    return keys


class Signatures:
    """Checks the calls of clients; without keys every client may call."""

    def __init__(self, keys: Mapping[str, str] | None) -> None:
        self._keys = keys

    def client(self, metadata: Sequence[tuple[str, str | bytes]]) -> str:
        """Return the id of the client that calls; `CallRefused` if it is missing, or its signature is wrong."""
        said = {name: value for name, value in metadata if isinstance(value, str)}
        if self._keys is not None:
            self._check(said)
        if not said.get(CLIENT):
            raise CallRefused(Code.CLIENT_ID_REQUIRED, f"the call has no {CLIENT}")
        return said[CLIENT]

    def _check(self, said: Mapping[str, str]) -> None:
        found = CREDENTIAL.match(said.get(AUTHORIZATION, ""))
        secret = (self._keys or {}).get(found[1]) if found else None
        if found is None or secret is None:
            raise CallRefused(Code.UNAUTHORIZED, "the call has no signature by a key that is known here")
        expected = hmac.new(secret.encode(), said.get(DATE, "").encode(), hashlib.sha1).hexdigest()
        if not hmac.compare_digest(expected, found[2].lower()):
            raise CallRefused(Code.UNAUTHORIZED, f"the signature of key {found[1]!r} is wrong")
