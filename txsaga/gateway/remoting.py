"""
RocketMQ's remoting protocol: one question to a name server or a broker, and its answer.

A frame is its length, the length of its header, a header in JSON and a body.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
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
