"""dtm runs sagas: the same SQL behind HTTP branches, which a small server of Python answers."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psycopg

from tests.bench.callers import threads
from tests.bench.home import Home
from tests.bench.peers import dtm

TABLES = "CREATE TABLE IF NOT EXISTS booking(v bigint, n int); CREATE TABLE IF NOT EXISTS undone(v bigint, n int)"
SQL = {"/do": "INSERT INTO booking(v, n) VALUES (%s, %s)", "/undo": "INSERT INTO undone(v, n) VALUES (%s, %s)"}
COUNTED = "SELECT (SELECT count(*) FROM booking), (SELECT count(*) FROM undone)"
REFUSED = 409
WORK = "dtm_work"


def rate(home: Home, folder: Path, callers: int, seconds: float) -> float:
    """Run sagas of five steps, the last of which fails; return how many were undone per second."""
    home.server.database(WORK)
    home.execute(TABLES + "; TRUNCATE booking; TRUNCATE undone", WORK)
    local = threading.local()
    with _answering(home.url(WORK, None)) as address, dtm.running(home, folder):

        def call(_: int) -> None:
            if not hasattr(local, "http"):
                local.http = HTTPConnection("127.0.0.1", dtm.PORT, timeout=60)
            _submit(local.http, address)

        call(0)
        calls = threads(callers, seconds, call)
    with psycopg.connect(home.url(WORK, None)) as connection:
        done, undone = connection.execute(COUNTED).fetchone() or (0, 0)
    if (done, undone) != (4 * (calls.made + 1),) * 2:
        raise RuntimeError(f"dtm did {done} steps and undid {undone} in {calls.made + 1} sagas")
    return calls.rate


def _submit(connection: HTTPConnection, address: str) -> None:
    """Have a saga run to its end: it fails, and that is the answer."""
    v = uuid.uuid4().int >> 72
    steps = [{"action": f"{address}/do", "compensate": f"{address}/undo"} for _ in range(4)]
    body = {
        "gid": uuid.uuid4().hex,
        "trans_type": "saga",
        "steps": [*steps, {"action": f"{address}/refuse", "compensate": ""}],
        "payloads": [json.dumps({"v": v, "n": n}) for n in range(1, 6)],
        "wait_result": True,
    }
    connection.request("POST", "/api/dtmsvr/submit", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    if answer.status != REFUSED:
        raise RuntimeError(f"dtm answered {answer.status}: {text[:200]!r}")


@contextmanager
def _answering(url: str) -> Iterator[str]:
    """Do what a branch asks for, each connection with one of its own to the database."""

    class Branches(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            self.database = psycopg.connect(url, autocommit=True)

        def finish(self) -> None:
            self.database.close()
            super().finish()

        def do_POST(self) -> None:
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            verb = self.path.partition("?")[0]
            if verb in SQL:
                self.database.execute(SQL[verb], (given["v"], given["n"]))
            self.send_response(200 if verb in SQL else REFUSED)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Branches)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
