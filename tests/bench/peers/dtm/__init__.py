"""dtm, run beside us on the same PostgreSQL: a message transaction without branch calls."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from sqlalchemy.engine import make_url

from tests.bench.callers import threads
from tests.bench.home import Home

PORT = 36789  # fixed by dtm's defaults
SCRIPTS = ("dtmsvr.storage.postgres.sql", "dtmcli.barrier.postgres.sql")


def built() -> Path | None:
    """Return the folder with the built peer: TXSAGA_DTM, made by `tests/bench/peers/dtm/build FOLDER`."""
    folder = Path(os.environ.get("TXSAGA_DTM", Path.home() / ".cache" / "txsaga-bench" / "dtm"))
    return folder if (folder / "dtm").exists() else None


@contextmanager
def running(home: Home, folder: Path, *, fresh: bool = True, killed: bool = False) -> Iterator[None]:
    """Run dtm on a database of the same server; `fresh` empties its tables, `killed` ends it by -9."""
    home.server.database("dtm")
    with psycopg.connect(home.url("dtm", None), autocommit=True) as connection:
        for script in SCRIPTS if fresh else ():
            connection.execute((folder / "sqls" / script).read_text())
    url = make_url(home.server.url("dtm"))
    env = {
        **os.environ,
        "STORE_DRIVER": "postgres",
        "STORE_HOST": "127.0.0.1",
        "STORE_PORT": str(url.port),
        "STORE_USER": url.username or "",
        "STORE_PASSWORD": url.password or "",
        "STORE_DB": "dtm",
        "STORE_MAX_OPEN_CONNS": "100",
        "LOG_LEVEL": "error",
    }
    process = subprocess.Popen(
        [folder / "dtm"], cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait()
        yield
    finally:
        (process.kill if killed else process.terminate)()
        process.wait(20)


def rate(clients: int, seconds: float) -> float:
    """Prepare and submit messages over kept connections; return transactions per second."""
    local = threading.local()

    def call(_: int) -> None:
        if not hasattr(local, "http"):
            local.http = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)
        body = message(uuid.uuid4().hex, "http://127.0.0.1:1/q")
        post(local.http, "prepare", body)
        post(local.http, "submit", {**body, "wait_result": True})

    return threads(clients, seconds, call).rate


def message(gid: str, asked: str) -> dict[str, object]:
    """Write a message without branch calls, whose producer is asked at an address."""
    return {"gid": gid, "trans_type": "msg", "query_prepared": asked, "steps": [{"action": ""}], "payloads": ["{}"]}


def post(connection: http.client.HTTPConnection, verb: str, body: dict[str, object]) -> None:
    """Send one request."""
    connection.request("POST", f"/api/dtmsvr/{verb}", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"dtm answered {answer.status}: {text[:200]!r}")


def _wait() -> None:
    end = time.monotonic() + 30
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=2)
            connection.request("GET", "/api/dtmsvr/version")
            connection.getresponse().read()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
