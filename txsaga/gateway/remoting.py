"""
RocketMQ's remoting protocol: a question to a name server or a broker, and what the brokers of a topic tell by it.

A frame is its length, the length of its header, a header in JSON and a body.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from typing import NamedTuple

SUCCESS = 0
TIMEOUT = 5.0
LONGEST = 64 * 2**20
"""Bytes of an answer that are accepted."""


class RemotingReply(NamedTuple):
    """An answer."""

    code: int
    remark: str
    body: bytes


def ask(address: str, code: int, fields: Mapping[str, str] | None = None, timeout: float = TIMEOUT) -> RemotingReply:
    """Send one request and read its answer; `OSError` if the server can't be reached, or does not speak this."""
    host, _, port = address.rpartition(":")
    header = json.dumps(
        {"code": code, "language": "PYTHON", "version": 0, "opaque": 1, "flag": 0, "extFields": dict(fields or {})}
    ).encode()
    with socket.create_connection((host.strip("[]"), int(port)), timeout) as server:
        server.sendall((len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)
        frame = _read(server, int.from_bytes(_read(server, 4), "big"))
    size = int.from_bytes(frame[1:4], "big")  # the byte before it tells how the header is written: 0 is JSON
    try:
        answer = json.loads(frame[4 : 4 + size])
        return RemotingReply(int(answer["code"]), str(answer.get("remark") or ""), frame[4 + size :])
    except (ValueError, KeyError, TypeError) as other:
        raise ConnectionError(f"{address} does not speak RocketMQ's remoting protocol") from other


def _read(server: socket.socket, size: int) -> bytes:
    if size > LONGEST:
        raise ConnectionError(f"an answer of {size} bytes is no answer of RocketMQ's")
    read = bytearray()
    while len(read) < size:
        part = server.recv(size - len(read))
        if not part:
            raise ConnectionError("the server closed the connection")
        read += part
    return bytes(read)


BROKER_SETTINGS, QUERY_MESSAGE, ROUTE, NO_TOPIC, NOT_FOUND = 26, 12, 105, 17, 22
ALL_TIME = {"beginTimestamp": "0", "endTimestamp": str(2**62), "maxNum": "32"}


class BrokerView:
    """What the brokers of one topic say about themselves; name servers are given as `host:port;host:port`."""

    def __init__(self, name_server: str, topic: str) -> None:
        self._name_servers, self._topic = name_server.split(";"), topic

    def settings(self) -> Mapping[str, Mapping[str, str]]:
        """Return the settings of each broker, by its address."""
        found = {}
        for broker in self._brokers():
            lines = _told(broker, BROKER_SETTINGS, {}).body.decode(errors="replace").splitlines()
            found[broker] = {name: value for name, _, value in (line.partition("=") for line in lines)}
        return found

    def has(self, message_id: str) -> bool:
        """Return whether a message is in the topic for consumers; a half message is not."""
        asked = {"topic": self._topic, "key": message_id, "_UNIQUE_KEY_QUERY": "true", **ALL_TIME}
        return any(message_id.encode() in _told(each, QUERY_MESSAGE, asked, NOT_FOUND).body for each in self._brokers())

    def _brokers(self) -> Sequence[str]:
        """Return the masters that have queues of the topic; ask the next name server if one does not answer."""
        for at, each in enumerate(self._name_servers, 1):
            try:
                answer = _told(each, ROUTE, {"topic": self._topic, "acceptStandardJsonOnly": "true"}, NO_TOPIC)
                break
            except OSError:
                if at == len(self._name_servers):
                    raise
        found = json.loads(answer.body) if answer.body else {}
        masters = (each["brokerAddrs"].get("0") for each in found.get("brokerDatas", ()))
        return [master for master in masters if master]


def _told(address: str, code: int, fields: Mapping[str, str], *others: int) -> RemotingReply:
    """Ask; `ConnectionError` for an answer with another code than success, or these."""
    answer = ask(address, code, fields)
    if answer.code not in (SUCCESS, *others):
        raise ConnectionError(f"{address} answered {answer.code}: {answer.remark}")
    return answer
