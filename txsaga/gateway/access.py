"""
Who calls: the client's id, and its signature and rights if the gateway has access keys.

The signature is that of RocketMQ's clients: HMAC-SHA1 of the date of the call, with the secret of the key.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from txsaga.gateway.access_keys import AccessKey
from txsaga.gateway.status import CallRefused, Code

CREDENTIAL = re.compile(r"\s*MQv2-HMAC-SHA1 .*?Credential=([^,/\s]+).*?Signature=([0-9A-Fa-f]+)")
CLIENT, DATE, AUTHORIZATION = "x-mq-client-id", "x-mq-date-time", "authorization"
RIGHTS = ("send", "receive", "group")
"""To send to a topic, to receive from a topic, to act for a consumer group."""
SENDING = frozenset({"SendMessage", "EndTransaction", "RecallMessage"})
OPEN = frozenset({"QueryRoute", "Heartbeat", "NotifyClientTermination"})


ANYBODY = AccessKey("")


class Caller(NamedTuple):
    """The client of a call, and the key that it signed with."""

    client: str
    key: AccessKey = ANYBODY

    def require(self, right: str, names: Sequence[str]) -> None:
        """Refuse a call that its key does not cover."""
        for name in names:
            if not self.key.allows(right, name):
                what = "group" if right == "group" else "topic"
                doing = {"send": "send to", "receive": "receive from", "group": "act for"}[right]
                raise CallRefused(
                    Code.FORBIDDEN, f"the key may not {doing} {what} {name!r}; add it to {right}= of the key"
                )

    def require_call(self, method: str, request: Any) -> None:
        """Refuse a call on topics or for a group that its key does not cover."""
        for right, names in _needed(method, request):
            self.require(right, names)


def _needed(method: str, request: Any) -> Iterator[tuple[str, Sequence[str]]]:
    fields = request.DESCRIPTOR.fields_by_name
    if method == "SendMessage":
        yield "send", [each.topic.name for each in request.messages]
    elif method in SENDING:
        yield "send", [request.topic.name]
    elif method not in OPEN:
        yield "receive", [(request.topic if "topic" in fields else request.message_queue.topic).name]
        yield "group", [request.group.name] if "group" in fields else []


class Signatures:
    """Checks the calls of clients; without keys every client may call."""

    def __init__(self, keys: Mapping[str, AccessKey] | None) -> None:
        self._keys = keys

    def caller(self, metadata: Sequence[tuple[str, str | bytes]]) -> Caller:
        """Return who calls; `CallRefused` if its id is missing, or its signature is wrong."""
        said = {name: value for name, value in metadata if isinstance(value, str)}
        key = ANYBODY if self._keys is None else self._checked(self._keys, said)
        if not said.get(CLIENT):
            raise CallRefused(Code.CLIENT_ID_REQUIRED, f"the call has no {CLIENT}")
        return Caller(said[CLIENT], key)

    def _checked(self, keys: Mapping[str, AccessKey], said: Mapping[str, str]) -> AccessKey:
        found = CREDENTIAL.match(said.get(AUTHORIZATION, ""))
        key = keys.get(found[1]) if found else None
        if found is None or key is None:
            raise CallRefused(Code.UNAUTHORIZED, "the call has no signature by a key that is known here")
        expected = hmac.new(key.secret.encode(), said.get(DATE, "").encode(), hashlib.sha1).hexdigest()
        if not hmac.compare_digest(expected, found[2].lower()):
            raise CallRefused(Code.UNAUTHORIZED, f"the signature of key {found[1]!r} is wrong")
        return key
