"""
A connection that is over at one moment, whatever the other side does.

Each wait on the socket gets what is left of the time, so a server that sends a byte now and then is as late as one that
says nothing. Only the resolver of host names keeps its own time. Without this a call lasts as long as the server likes.
"""

from __future__ import annotations

import io
import socket
import ssl
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


class Deadline:
    """The moment at which a call is over."""

    def __init__(self, seconds: float) -> None:
        self._ends = monotonic() + seconds

    def left(self) -> float:
        """Return the seconds that are left; `TimeoutError` when there are none."""
        left = self._ends - monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left


class TimedSocket:
    """What `http.client` needs of a socket: it sends, gives a file to read from, and closes."""

    def __init__(self, opened: socket.socket, deadline: Deadline) -> None:
        self._socket, self._deadline = opened, deadline

    def sendall(self, data: ReadableBuffer) -> None:
        """Send all of it."""
        rest = memoryview(data)
        while rest:
            self._socket.settimeout(self._deadline.left())
            rest = rest[self._socket.send(rest) :]

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return a file that reads; the socket stays open for it."""
        return io.BufferedReader(_Reader(self._socket, self._deadline))

    def close(self) -> None:
        """Close the socket, once its files are closed."""
        self._socket.close()


class _Reader(io.RawIOBase):
    def __init__(self, opened: socket.socket, deadline: Deadline) -> None:
        self._socket, self._deadline = opened, deadline
        self._file = opened.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        self._socket.settimeout(self._deadline.left())
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


def connected(host: str, port: int, deadline: Deadline, tls: ssl.SSLContext | None) -> TimedSocket:
    """Connect to the first address of a host that answers; each has its share of the time."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for left, place in zip(range(len(found), 0, -1), found, strict=True):
        try:
            opened = _reached(place, deadline.left() / left)
            break
        except OSError:
            if left == 1:
                raise
    try:
        opened.settimeout(deadline.left())
        return TimedSocket(tls.wrap_socket(opened, server_hostname=host) if tls else opened, deadline)
    except BaseException:
        opened.close()
        raise


def _reached(place: tuple[Any, ...], seconds: float) -> socket.socket:
    family, kind, protocol, _, address = place
    opened = socket.socket(family, kind, protocol)
    try:
        opened.settimeout(seconds)
        opened.connect(address)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        opened.close()
        raise
    return opened
