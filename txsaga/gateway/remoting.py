"""RocketMQ's remoting protocol: a question to a name server or a broker, and what the brokers of a topic tell by it."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence

from txsaga.errors import ResourceManagerFailed

SUCCESS, NO_TOPIC, NOT_FOUND = 0, 17, 22
QUERY_MESSAGE, BROKER_SETTINGS, ROUTE = 12, 26, 105
TIMEOUT = 5.0
ALL_TIME = {"beginTimestamp": "0", "endTimestamp": str(2**62), "maxNum": "32"}


def ask(address: str, code: int, fields: Mapping[str, str] | None = None, *others: int) -> bytes:
    """Return the body of the answer to a request; `ResourceManagerFailed` unless its code is SUCCESS or another."""
    host, _, port = address.rpartition(":")
    asked = {"code": code, "language": "PYTHON", "version": 0, "opaque": 1, "flag": 0, "extFields": dict(fields or {})}
    header = json.dumps(asked).encode()
    try:
        with socket.create_connection((host.strip("[]"), int(port)), TIMEOUT) as server, server.makefile("rb") as read:
            server.sendall((len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)
            frame = read.read(int.from_bytes(read.read(4), "big"))
        size = int.from_bytes(frame[1:4], "big")  # the byte before it tells how the header is written: 0 is JSON
        answer = json.loads(frame[4 : 4 + size])
        code = answer["code"]
    except (OSError, ValueError, KeyError, TypeError) as lost:
        raise ResourceManagerFailed(f"{address} has no answer of RocketMQ's remoting protocol: {lost!r}") from lost
    if code not in (SUCCESS, *others):
        raise ResourceManagerFailed(f"{address} answered {code}: {answer.get('remark')}")
    return frame[4 + size :]


class BrokerView:
    """What the brokers of one topic say about themselves; name servers are given as `host:port;host:port`."""

    def __init__(self, name_server: str, topic: str) -> None:
        self._name_servers, self._topic = name_server.split(";"), topic

    def settings(self) -> Mapping[str, Mapping[str, str]]:
        """Return the settings of each broker, by its address."""
        said = {each: ask(each, BROKER_SETTINGS).decode(errors="replace") for each in self._brokers()}
        return {
            each: dict(line.split("=", 1) for line in text.split("\n") if "=" in line) for each, text in said.items()
        }

    def has(self, message_id: str) -> bool:
        """Return whether a message is in the topic for consumers; a half message is not."""
        asked = {"topic": self._topic, "key": message_id, "_UNIQUE_KEY_QUERY": "true", **ALL_TIME}
        found = (ask(broker, QUERY_MESSAGE, asked, NOT_FOUND) for broker in self._brokers())
        return any(message_id.encode() in body for body in found)

    def _brokers(self) -> Sequence[str]:
        """Return the masters that have queues of the topic; the next name server is asked if one does not answer."""
        asked, found = {"topic": self._topic, "acceptStandardJsonOnly": "true"}, b""
        for each in self._name_servers:
            try:
                found = ask(each, ROUTE, asked, NO_TOPIC) or b"{}"
                break
            except ResourceManagerFailed:
                if each == self._name_servers[-1]:
                    raise
        masters = (each["brokerAddrs"].get("0") for each in json.loads(found).get("brokerDatas", ()))
        return [master for master in masters if master]
