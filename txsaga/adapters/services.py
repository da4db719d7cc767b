"""Services over HTTP. A redirect is not followed; an answer is read up to a limit."""

from __future__ import annotations

from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from txsaga.errors import ConfigError
from txsaga.ports.services import Reply

LONGEST = 1_000_000


def call_service(method: str, url: str, body: bytes, headers: Mapping[str, str], timeout: float) -> Reply:
    """Send one request and read its answer."""
    try:
        address = urlsplit(url)
        port = address.port
    except ValueError:
        raise ConfigError(f"{url!r} is no address; write https://host/path") from None
    if address.scheme not in ("http", "https") or not address.hostname or "@" in address.netloc:
        raise ConfigError("the address of a service must be https://host/path, without user and password")
    kind = HTTPConnection if address.scheme == "http" else HTTPSConnection
    connection = kind(address.hostname, port, timeout=timeout)
    path = (address.path or "/") + (f"?{address.query}" if address.query else "")
    try:
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        return Reply(answer.status, answer.read(LONGEST))
    except HTTPException as broken:
        raise ConnectionError(f"{type(broken).__name__}: {broken}") from broken
    finally:
        connection.close()
