"""
Services over HTTP: one request, one answer, within one time-out.

A redirect is not followed. Of an answer only the beginning is taken; what it lacks is told beside it. If the answer is
lost, nobody knows here whether the service did anything.
"""

from __future__ import annotations

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
from urllib.parse import SplitResult, urlsplit

from txsaga.adapters.timed import Deadline, connected
from txsaga.errors import ConfigError
from txsaga.model.redacting import redacted
from txsaga.ports.services import Reply

LONGEST = 1_000_000
"""Bytes of an answer that are taken."""


def call_service(method: str, url: str, body: bytes, headers: Mapping[str, str], timeout: float) -> Reply:
    """Send one request and read its answer."""
    try:
        address = urlsplit(url)
        _ = address.port
    except ValueError:
        raise ConfigError(f"{redacted(url)!r} is no address; write https://host/path") from None
    if address.scheme not in ("http", "https") or not address.hostname or "@" in address.netloc:
        raise ConfigError("the address of a service must be https://host/path, without user and password")
    return replied(method, address, body, headers, timeout)


def path_of(address: SplitResult) -> str:
    """Return what is asked for at a host."""
    return (address.path or "/") + (f"?{address.query}" if address.query else "")


def replied(
    method: str,
    address: SplitResult,
    body: bytes,
    headers: Mapping[str, str],
    timeout: float,
    tls: ssl.SSLContext | None = None,
) -> Reply:
    """Send one request to a checked address; whatever goes wrong on the way is an `OSError`."""
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


def _read(answer: HTTPResponse) -> Reply:
    try:
        body, ended = answer.read(LONGEST + 1), True
    except IncompleteRead as early:
        body, ended = early.partial, False
    except ConnectionError:  # what it said of itself is here already
        body, ended = b"", False
    if len(body) > LONGEST:
        return Reply(answer.status, body[:LONGEST], f"more than {LONGEST:,} bytes; answer with less")
    return Reply(answer.status, body, "" if ended and not answer.length else "fewer bytes than it announced")
