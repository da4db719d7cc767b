"""An Airflow that answers by REST what a test wants it to; it listens on a free port of 127.0.0.1."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from tests.services.free_port import free_port


class FakeAirflow:
    """What it knows, and what it was asked."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.runs: dict[str, str] = {}
        self.valid = "token-1"
        self.refuses = False
        self.broken = False
        self.missing: dict[str, str] = {}
        self.asked: list[str] = []
        self.logins = 0

    @property
    def url(self) -> str:
        """Where it is, with a login."""
        return f"http://admin:secret@127.0.0.1:{self.port}"

    def answer(self, path: str, token: str) -> tuple[int, object]:
        """Answer one request."""
        self.asked.append(path)
        if path == "/auth/token":
            self.logins += 1
            return (401, {}) if self.refuses else (201, {"access_token": self.valid})
        if self.broken:
            return 500, {}
        if token != f"Bearer {self.valid}":
            return 401, {}
        state = self.runs.get(path.removeprefix("/api/v2/dags/").replace("/dagRuns/", "/"))
        if state is not None:
            return 200, {"state": state}
        return 404, self.missing or {"detail": gone(*path.removeprefix("/api/v2/dags/").split("/dagRuns/"))}


def gone(dag: str, run: str) -> str:
    """Say what Airflow says of a run that is not there."""
    return f"The DagRun with dag_id: `{unquote(dag)}` and run_id: `{unquote(run)}` was not found"


@contextmanager
def fake_airflow() -> Iterator[FakeAirflow]:
    """Serve one."""
    fake = FakeAirflow(free_port())

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, document = fake.answer(self.path, self.headers.get("Authorization", ""))
            body = json.dumps(document).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.do_GET()

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
