"""RocketMQ's remoting protocol: a question to a name server or a broker, and what the brokers of a topic tell by it."""

from __future__ import annotations

import hmac
import json
import re
import socket
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from txsaga.errors import ResourceManagerFailed

SUCCESS, NO_TOPIC, NOT_FOUND = 0, 17, 22
QUERY_MESSAGE, BROKER_SETTINGS, ROUTE = 12, 26, 105
FIXED = {"language": "PYTHON", "version": 500, "opaque": 1, "flag": 0}  # a version whose signature covers all fields
TIMEOUT = 5.0
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"  # where a broker puts a half message that it does not ask about any more
ALL_TIME = {"beginTimestamp": "0", "endTimestamp": str(2**62), "maxNum": "32"}
Keys = Sequence[str]
Fields = Mapping[str, str]


def ask(address: str, code: int, fields: Fields | None = None, *others: int, keys: Keys | None = None) -> bytes:
    """Return the body of the answer to a request; `ResourceManagerFailed` unless its code is SUCCESS or another."""
    with asking(address, keys) as asked:
        return asked(code, fields or {}, *others)


@contextmanager
def asking(address: str, keys: Keys | None) -> Iterator[Callable[..., bytes]]:
    """Connect to a name server or a broker, for several requests."""

    def asked(code: int, fields: Fields, *others: int) -> bytes:
        header = json.dumps({**FIXED, "code": code, "extFields": _signed(fields, keys)}).encode()
        server.sendall((len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)
        frame = read.read(int.from_bytes(read.read(4), "big"))
        size = int.from_bytes(frame[1:4], "big")  # the byte before it tells how the header is written: 0 is JSON
        answer = json.loads(frame[4 : 4 + size])
        if answer["code"] not in (SUCCESS, *others):
            raise ResourceManagerFailed(f"{address} answered {answer['code']}: {answer.get('remark')}")
        return frame[4 + size :]

    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), TIMEOUT) as server, server.makefile("rb") as read:
            yield asked
    except (OSError, ValueError, KeyError, TypeError) as lost:
        raise ResourceManagerFailed(f"{address} has no answer of RocketMQ's remoting protocol: {lost!r}") from lost


def _signed(fields: Fields, keys: Keys | None) -> Fields:
    said = {**fields, "AccessKey": keys[0]} if keys else fields
    content = "".join(said[name] for name in sorted(said)).encode()
    return {**said, "Signature": b64encode(hmac.digest(keys[1].encode(), content, "sha1")).decode()} if keys else said


class BrokerView:
    """What the brokers of one topic say about themselves; name servers are given as `host:port;host:port`."""

    def __init__(self, name_server: str, topic: str, keys: Keys | None) -> None:
        self._name_servers, self._topic, self._keys = name_server.split(";"), topic, keys

    def settings(self) -> Mapping[str, Mapping[str, str]]:
        """Return the settings of each broker, by its address."""
        said = {each: ask(each, BROKER_SETTINGS, keys=self._keys).decode(errors="replace") for each in self._brokers()}
        return {each: dict(re.findall("^(.*?)=(.*)$", text, re.MULTILINE)) for each, text in said.items()}

    def missing(self, ids: Sequence[str], topic: str | None = None) -> Sequence[str]:
        """Return what is not in the topic for consumers, or in another topic; a half message is not."""
        if not (addresses := self._brokers()):
            raise ResourceManagerFailed(f"name servers {self._name_servers} do not know topic {self._topic!r} now")
        asked = {"topic": topic or self._topic, "_UNIQUE_KEY_QUERY": "true", **ALL_TIME}
        for address in addresses:
            with asking(address, self._keys) as broker:
                ids = [id for id in ids if id.encode() not in broker(QUERY_MESSAGE, {**asked, "key": id}, NOT_FOUND)]
        return ids

    def _brokers(self) -> Sequence[str]:
        """Return the masters that have queues of the topic; the next name server is asked if one does not answer."""
        asked, found = {"topic": self._topic, "acceptStandardJsonOnly": "true"}, b""
        for each in self._name_servers:
            try:
                found = ask(each, ROUTE, asked, NO_TOPIC, keys=self._keys) or b"{}"
                break
            except ResourceManagerFailed:
                if each == self._name_servers[-1]:
                    raise
        brokers = [each["brokerAddrs"] for each in json.loads(found).get("brokerDatas", ())]
        if not all("0" in each for each in brokers):
            raise ResourceManagerFailed(f"a broker of topic {self._topic!r} has no master now")
        return [each["0"] for each in brokers]
