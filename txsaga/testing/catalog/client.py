"""A catalog over plain HTTP: what is sent and answered, and when."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

Json = dict[str, Any]
COMMIT = "POST /v1/{prefix}/transactions/commit"


class CatalogUnreachable(Exception):
    """The server can't be tested: it does not answer, or not as a catalog that commits several tables."""


class NoAnswer(Exception):
    """A request had no answer: the connection ended, or the time was over."""


@dataclass(frozen=True, slots=True)
class CatalogReply:
    """An answer of the server."""

    status: int
    headers: Mapping[str, str]
    body: Any
    sent: float
    answered: float

    @property
    def ok(self) -> bool:
        """Whether the request was done."""
        return 200 <= self.status < 300

    @property
    def refused(self) -> bool:
        """Whether the request was refused for good: the client knows that nothing was done."""
        return 400 <= self.status < 500

    def __str__(self) -> str:
        """Return the status with what the server said."""
        error = self.body.get("error") if isinstance(self.body, dict) else None
        if not isinstance(error, dict):
            return str(self.status)
        said = " ".join(str(error.get("message", "")).split())
        return f"{self.status} {error.get('type', '')} ({said[:80]})"


class CatalogClient:
    """The client of a catalog; any number of threads may use it."""

    def __init__(self, url: str, headers: Mapping[str, str], *, timeout: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise CatalogUnreachable(f"{url} is no URL of an HTTP server")
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._base = parts.path.rstrip("/").removesuffix("/v1")
        self.url, self.timeout, self.prefix = url, timeout, ""
        self._headers, self._idle = {"accept": "application/json", **headers}, deque[HTTPConnection]()
        self.remembers_keys = False

    def configure(self, prefix: str | None, warehouse: str | None) -> None:
        """Read the server's configuration: the prefix, and whether it commits several tables."""
        query = f"?{urlencode({'warehouse': warehouse})}" if warehouse else ""
        try:
            reply = self.call("get", f"/v1/config{query}", prefixed=False)
        except NoAnswer as failure:
            raise CatalogUnreachable(f"{self.url} does not answer: {failure}") from failure
        if not reply.ok or not isinstance(reply.body, dict):
            raise CatalogUnreachable(f"{self.url} is no Iceberg REST catalog: GET /v1/config answers {reply}")
        endpoints = reply.body.get("endpoints")
        if endpoints and COMMIT not in endpoints:
            raise CatalogUnreachable(f"{self.url} does not list {COMMIT} among its endpoints")
        settings = {**(reply.body.get("defaults") or {}), **(reply.body.get("overrides") or {})}
        self.prefix = prefix if prefix is not None else settings.get("prefix", "")
        self.remembers_keys = reply.body.get("idempotency-key-lifetime") is not None

    def call(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        prefixed: bool = True,
    ) -> CatalogReply:
        """Send a request and wait for its answer; a GET is sent once more if its connection was stale."""
        whole, said = self._path(path) if prefixed else self._base + path, self._said(body, headers)
        for fresh in (method != "get", True):
            line = self._line(fresh=fresh)
            try:
                reply = self._answer(line, method.upper(), whole, said)
            except (OSError, HTTPException) as failure:
                line.close()
                if fresh or isinstance(failure, TimeoutError):
                    raise NoAnswer(f"{method.upper()} {path}: {failure or type(failure).__name__}") from failure
            else:
                self._idle.append(line)
                return reply
        raise AssertionError("a request is answered or fails")

    def close(self) -> None:
        """Close the connections."""
        while self._idle:
            self._idle.pop().close()

    def send_and_cut(self, path: str, body: Json, headers: Mapping[str, str], after: float) -> None:
        """Send a request, and cut the connection some seconds later without reading the answer."""
        line, (content, all_headers) = self._open(), self._said(body, headers)
        try:
            line.request("POST", self._path(path), content, all_headers)
            time.sleep(after)
        except OSError as failure:
            raise NoAnswer(f"POST {path}: {failure}") from failure
        finally:
            line.close()

    def alive(self) -> bool:
        """Return whether the server answers at all."""
        try:
            self.call("get", "/v1/config", prefixed=False)
        except NoAnswer:
            return False
        return True

    def _path(self, path: str) -> str:
        prefix = f"/{quote(self.prefix)}" if self.prefix else ""
        return f"{self._base}/v1{prefix}{path}"

    def _said(self, body: Json | None, headers: Mapping[str, str] | None) -> tuple[bytes | None, dict[str, str]]:
        content = None if body is None else json.dumps(body).encode()
        kind = {} if body is None else {"content-type": "application/json"}
        return content, {**self._headers, **kind, **(headers or {})}

    def _answer(
        self, line: HTTPConnection, method: str, path: str, said: tuple[bytes | None, dict[str, str]]
    ) -> CatalogReply:
        sent = time.monotonic()
        line.request(method, path, *said)
        answer = line.getresponse()
        content, answered = answer.read(), time.monotonic()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return CatalogReply(answer.status, headers, _parsed(content), sent, answered)

    def _line(self, *, fresh: bool) -> HTTPConnection:
        try:
            idle = self._idle.pop()
        except IndexError:
            return self._open()
        if not fresh:
            return idle
        idle.close()
        return self._open()

    def _open(self) -> HTTPConnection:
        kind = HTTPSConnection if self._secure else HTTPConnection
        return kind(self._host, self._port, timeout=self.timeout)


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content) if content else None
    except ValueError:
        return None
