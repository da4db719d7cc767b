"""An Airflow that answers by REST what a test wants it to; it listens on a free port of 127.0.0.1."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from tests.services.free_port import free_port


class FakeAirflow:
    """What it knows, and what it was asked."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.runs: dict[str, str] = {}
        self.valid = "token-1"
        self.refuses = False
        self.broken = False
        self.covered: set[str] = set()
        self.missing: dict[str, str] = {}
        self.asked: list[str] = []
        self.logins = 0
        self.assets: list[dict[str, object]] = []
        self.events: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        """Where it is, with a login."""
        return f"http://admin:secret@127.0.0.1:{self.port}"

    def asset(self, name: str, uri: str) -> int:
        """Let a DAG have an asset."""
        self.assets.append({"id": len(self.assets) + 1, "name": name, "uri": uri})
        return len(self.assets)

    def event(self, asset: int, **extra: object) -> None:
        """Let an asset have an event."""
        self.events.append({"asset_id": asset, "extra": extra})

    def answer(self, path: str, token: str, body: object = None) -> tuple[int, object]:
        """Answer one request."""
        self.asked.append(path)
        if ("GET" if body is None else "POST") in self.covered:
            return 404, {}
        if path == "/auth/token":
            self.logins += 1
            return (401, {}) if self.refuses else (201, {"access_token": self.valid})
        if self.broken:
            return 500, {}
        if token != f"Bearer {self.valid}":
            return 401, {}
        if path.startswith("/api/v2/assets"):
            return 200, self._of_assets(urlsplit(path), body)
        state = self.runs.get(path.removeprefix("/api/v2/dags/").replace("/dagRuns/", "/"))
        if state is not None:
            return 200, {"state": state}
        return 404, self.missing or {"detail": gone(*path.removeprefix("/api/v2/dags/").split("/dagRuns/"))}

    def _of_assets(self, path: SplitResult, body: object) -> object:
        if isinstance(body, dict):
            self.events.append(body)
            return body
        asked = {name: values[0] for name, values in parse_qs(path.query).items()}
        if path.path.endswith("/events"):
            found = [each for each in reversed(self.events) if str(each["asset_id"]) == asked["asset_id"]]
            return {"asset_events": _page(found, asked)}
        name, uri = asked.get("name_pattern", ""), asked.get("uri_pattern", "")
        like = [each for each in self.assets if name in str(each["name"]) and uri in str(each["uri"])]
        return {"assets": _page(like, asked)}


def _page(found: list[Any], asked: dict[str, str]) -> list[Any]:
    offset = int(asked["offset"])
    return found[offset : offset + int(asked["limit"])]


def gone(dag: str, run: str) -> str:
    """Say what Airflow says of a run that is not there."""
    return f"The DagRun with dag_id: `{unquote(dag)}` and run_id: `{unquote(run)}` was not found"


@contextmanager
def fake_airflow() -> Iterator[FakeAirflow]:
    """Serve one."""
    fake = FakeAirflow(free_port())

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self, given: object = None) -> None:
            code, document = fake.answer(self.path, self.headers.get("Authorization", ""), given)
            body = json.dumps(document).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.do_GET(json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0)))))

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", fake.port), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
