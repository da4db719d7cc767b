"""dtm recovers: messages prepared, their local work committed, all killed with -9, the server started again."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psycopg

from tests.bench.home import Home
from tests.bench.peers import dtm

BARRIERS = """
WITH b AS (INSERT INTO dtm_barrier.barrier (trans_type, gid, branch_id, op, barrier_id, reason)
           SELECT 'msg', gid, '00', 'msg', '01', 'msg' FROM unnest(%s::text[]) gid)
INSERT INTO business(v) SELECT 1 FROM unnest(%s::text[])"""
LEFT = "SELECT count(*) FROM trans_global WHERE status = 'prepared'"
DONE = "SELECT count(*) FROM trans_global WHERE status = 'succeed'"
LONGEST = 900


def seconds(home: Home, folder: Path, count: int) -> float:
    """Return the seconds from the first check of the server that was started again until none is undecided."""
    with _asked() as (address, asked):
        with dtm.running(home, folder, killed=True):
            _prepared(home, folder, address, count)
        with psycopg.connect(home.url("dtm", None), autocommit=True) as poll, dtm.running(home, folder, fresh=False):
            if not asked.wait(LONGEST):
                raise RuntimeError("dtm asked about nothing")
            started = time.perf_counter()
            while poll.execute(LEFT).fetchone() != (0,):
                if time.perf_counter() - started > LONGEST:
                    raise RuntimeError("dtm did not settle them")
                time.sleep(0.05)
            passed = time.perf_counter() - started
            if poll.execute(DONE).fetchone() != (count,):
                raise RuntimeError("dtm decided wrongly")
    return passed


def _prepared(home: Home, folder: Path, address: str, count: int) -> None:
    """Leave messages behind the commit of their barrier."""
    gids = [uuid.uuid4().hex for _ in range(count)]
    connection = HTTPConnection("127.0.0.1", dtm.PORT, timeout=30)
    for gid in gids:
        dtm.post(connection, "prepare", dtm.message(gid, address))
    connection.close()
    with psycopg.connect(home.url("other", None), autocommit=True) as other:
        other.execute((folder / "sqls" / dtm.SCRIPTS[1]).read_bytes())
        other.execute(BARRIERS, [gids, gids])


@contextmanager
def _asked() -> Iterator[tuple[str, threading.Event]]:
    """Answer every check with 200; the event tells of the first one."""
    asked = threading.Event()

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.set()
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/q", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
