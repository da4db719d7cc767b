"""Restate, run beside us: the same steps as a durable handler, its journal in its own log on the same disk."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.bench.callers import threads
from tests.bench.home import Home
from tests.services.free_port import free_port

SERVICE = Path(__file__).with_name("service.py")
TABLES = "CREATE TABLE IF NOT EXISTS booking(v bigint, n int); CREATE TABLE IF NOT EXISTS undone(v bigint, n int)"
EXPECTED = {"five": "undone", "two": "done"}
JSON = {"Content-Type": "application/json"}
SETTINGS = """
base-dir = "{folder}"
disable-telemetry = true
listen-mode = "tcp"
bind-address = "127.0.0.1:{node}"
[admin]
bind-address = "127.0.0.1:{admin}"
[ingress]
bind-address = "127.0.0.1:{ingress}"
"""


def built() -> Path | None:
    """Return the folder of the peer: TXSAGA_RESTATE, made by `tests/bench/peers/restate/build FOLDER`."""
    folder = Path(os.environ.get("TXSAGA_RESTATE", Path.home() / ".cache" / "txsaga-bench" / "restate"))
    return folder if (folder / "node_modules").exists() else None


def rate(home: Home, folder: Path, case: str, callers: int, seconds: float) -> float:
    """Call a handler from so many threads; return how many came to their end per second."""
    home.server.database("restate_work")
    home.execute(TABLES, "restate_work")
    with running(folder, home.url("restate_work", None)) as port:
        call = _caller(port, case)
        for v in range(20):
            call(v)
        return threads(callers, seconds, call).rate


@contextmanager
def running(folder: Path, work: str) -> Iterator[int]:
    """Run the server and the service that it calls; return the port that takes calls."""
    node, admin, ingress, service = (free_port() for _ in range(4))
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        settings = place / "restate.toml"
        settings.write_text(SETTINGS.format(folder=place, node=node, admin=admin, ingress=ingress))
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"WORK_URL": work}
        served = [str(folder / "bin" / "hypercorn"), "service:app", "--bind", f"127.0.0.1:{service}"]
        stack.enter_context(_process(served, SERVICE.parent, env, place))
        server = [str(folder / "node_modules" / ".bin" / "restate-server"), "--no-logo", "-c", str(settings)]
        stack.enter_context(_process(server, place, env, place))
        _until(lambda: _get(admin, "/health"))
        _until(lambda: _register(admin, service))
        yield ingress


@contextmanager
def _process(command: list[str], folder: Path, env: dict[str, str], place: Path) -> Iterator[None]:
    with (place / f"{Path(command[0]).name}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _caller(port: int, case: str) -> Callable[[int], None]:
    local, numbers = threading.local(), iter(range(1_000_000_000))

    def call(_: int) -> None:
        if not hasattr(local, "http"):
            local.http = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        local.http.request("POST", f"/saga/{case}", json.dumps(next(numbers)), JSON)
        answer = local.http.getresponse()
        text = answer.read()
        if answer.status != 200 or json.loads(text) != EXPECTED[case]:
            raise RuntimeError(f"restate answered {answer.status}: {text[:200]!r}")

    return call


def _get(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", path)
    return connection.getresponse().status == 200


def _register(admin: int, service: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", admin, timeout=20)
    connection.request("POST", "/deployments", json.dumps({"uri": f"http://127.0.0.1:{service}"}), JSON)
    return connection.getresponse().status in (200, 201)


def _until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            if true():
                return
        except OSError as error:
            failure: object = error
        else:
            failure = "it says no"
        if time.monotonic() > end:
            raise RuntimeError(f"restate did not start: {failure}")
        time.sleep(0.1)
