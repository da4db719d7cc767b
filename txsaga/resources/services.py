"""Calls of HTTP services, as steps of sagas make them."""

from __future__ import annotations

import io
import socket
import ssl
from collections.abc import Mapping
from http.client import (
    HTTP_PORT,
    HTTPS_PORT,
    HTTPConnection,
    HTTPException,
    HTTPResponse,
    HTTPSConnection,
    IncompleteRead,
)
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import SplitResult, urlsplit

from txsaga.core.failure import on_failure
from txsaga.core.redacting import redacted
from txsaga.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


SAID = 200
"""Characters of an answer that an error quotes."""


class HttpReply(NamedTuple):
    """The answer of a service."""

    status: int
    body: bytes
    cut: str = ""
    """If the body is not the whole answer: what is wrong with its size."""

    @property
    def is_yes(self) -> bool:
        """Whether the status reports success."""
        return 200 <= self.status < 300

    def __str__(self) -> str:
        return f"{self.status} {' '.join(self.body.decode(errors='replace').split())[:SAID]}".rstrip()


class Services(Protocol):
    """Calls services."""

    def __call__(self, method: str, url: str, body: bytes, headers: Mapping[str, str], timeout: float) -> HttpReply:
        """Send one request and read its answer, all within the time-out.

        `ConfigError` for an address that can't be called. Connection errors are raised as `OSError`;
        `ConnectionRefusedError` means that nothing was sent.
        """


class Deadline:
    """The time at which a call must be over."""

    def __init__(self, seconds: float) -> None:
        self._ends = monotonic() + seconds

    def left(self) -> float:
        """Return the seconds that are left; `TimeoutError` if there are none."""
        left = self._ends - monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left


class TimedSocket:
    """The part of a socket that `http.client` needs: sending, a file to read from, closing."""

    def __init__(self, opened: socket.socket, deadline: Deadline) -> None:
        self._socket, self._deadline = opened, deadline

    def sendall(self, data: ReadableBuffer) -> None:
        """Send all of the data."""
        rest = memoryview(data)
        while rest:
            self._socket.settimeout(self._deadline.left())
            rest = rest[self._socket.send(rest) :]

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return a file to read from; the socket stays open for it."""
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
    """Connect to the first address of a host that answers; each gets its share of the time."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for left, place in zip(range(len(found), 0, -1), found, strict=True):
        try:
            opened = _reached(place, deadline.left() / left)
            break
        except OSError:
            if left == 1:
                raise
    with on_failure(opened.close):
        opened.settimeout(deadline.left())
        return TimedSocket(tls.wrap_socket(opened, server_hostname=host) if tls else opened, deadline)


def _reached(place: tuple[Any, ...], seconds: float) -> socket.socket:
    family, kind, protocol, _, address = place
    opened = socket.socket(family, kind, protocol)
    with on_failure(opened.close):
        opened.settimeout(seconds)
        opened.connect(address)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


LONGEST = 1_000_000
"""Bytes of an answer that are accepted."""


def call_service(method: str, url: str, body: bytes, headers: Mapping[str, str], timeout: float) -> HttpReply:
    """Send one request and read its answer."""
    try:
        address = urlsplit(url)
        _ = address.port
    except ValueError:
        raise ConfigError(f"{redacted(url)!r} is not an address; write https://host/path") from None
    if address.scheme not in ("http", "https") or not address.hostname or "@" in address.netloc:
        raise ConfigError("the address of a service must be https://host/path, without user and password")
    return replied(method, address, body, headers, timeout)


def path_of(address: SplitResult) -> str:
    """Return the path and query of an address."""
    return (address.path or "/") + (f"?{address.query}" if address.query else "")


def replied(
    method: str,
    address: SplitResult,
    body: bytes,
    headers: Mapping[str, str],
    timeout: float,
    tls: ssl.SSLContext | None = None,
) -> HttpReply:
    """Send one request to a checked address; any failure on the way is an `OSError`."""
    context = None if address.scheme == "http" else tls or ssl.create_default_context()
    connection = _connection(address, context)
    try:
        connection.sock = connected(connection.host, connection.port, Deadline(timeout), context)
        connection.request(method, path_of(address), body, dict(headers))
        with connection.getresponse() as answer:
            return _read(answer)
    except HTTPException as broken:
        raise ConnectionError(f"{type(broken).__name__}: {broken}") from broken
    finally:
        connection.close()


def _connection(address: SplitResult, tls: ssl.SSLContext | None) -> HTTPConnection:
    assert address.hostname
    if tls is None:
        return HTTPConnection(address.hostname, address.port or HTTP_PORT)
    return HTTPSConnection(address.hostname, address.port or HTTPS_PORT, context=tls)


def _read(answer: HTTPResponse) -> HttpReply:
    try:
        body, ended = answer.read(LONGEST + 1), True
    except IncompleteRead as early:
        body, ended = early.partial, False
    except ConnectionError:  # status and headers are here already
        body, ended = b"", False
    if len(body) > LONGEST:
        return HttpReply(answer.status, body[:LONGEST], f"more than {LONGEST:,} bytes; answer with less")
    return HttpReply(answer.status, body, "" if ended and not answer.length else "fewer bytes than it announced")
