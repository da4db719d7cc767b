"""
An Airflow of its own for tests, with real processes, in a folder that goes with it.

Everything is stopped by the product's own `down`; what that leaves is found by the session's check.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import txsaga
from tests.cli.program import Said, environment
from tests.cli.program import run as run_command
from tests.services.embedded import temporary_home
from tests.services.free_port import free_port
from txsaga.airflow_host import processes
from txsaga.airflow_host.home import AirflowHome
from txsaga.airflow_host.processes import AirflowPart, PartRecord
from txsaga.airflow_host.rest import Airflow
from txsaga.broker import Broker
from txsaga.embedded.server import EmbeddedServer

DAGS = Path(__file__).parent / "dags"
PATIENCE = 90.0
ENDED = ("success", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedAirflow:
    """A running Airflow and ways to use it."""

    home: AirflowHome
    env: Mapping[str, str]
    port: int

    def command(self, *words: str) -> Said:
        """Call `txsaga airflow` about it."""
        return run_command("airflow", *words, env=self.env)

    @property
    def api(self) -> Airflow:
        """Its REST interface, logged in."""
        keys = self.home.keys()
        assert keys is not None
        return Airflow(keys.url(login=True))

    def trigger(self, dag: str, **conf: object) -> str:
        """Start a run, as soon as the DAG is known; return its id."""
        body = {"logical_date": None, "conf": conf}
        started: dict[str, Any] = until(lambda: self.api.ask("POST", f"dags/{dag}/dagRuns", body))
        return str(started["dag_run_id"])

    def end_of(self, dag: str, run: str) -> str:
        """Wait for the end of a run; return its state."""
        return str(until(lambda: self._ended(dag, run)))

    def clear(self, dag: str, run: str) -> None:
        """Clear all tasks of a run, as its page does."""
        asked = {"dry_run": False, "dag_run_id": run, "only_failed": False, "reset_dag_runs": True}
        found = self.api.ask("POST", f"dags/{dag}/clearTaskInstances", asked)
        assert found["total_entries"] > 0, found

    def said(self, dag: str, run: str, task: str, attempt: int) -> str:
        """Return the log of an attempt."""
        path = f"dags/{dag}/dagRuns/{quote(run, safe='')}/taskInstances/{task}/logs/{attempt}?full_content=true"
        return json.dumps(self.api.ask("GET", path), ensure_ascii=False)

    def pid(self, part: AirflowPart) -> int:
        """Return the process of a part."""
        record = PartRecord.read(self.home)
        assert record is not None
        return record.parts[part].pid

    def kill(self, *parts: AirflowPart) -> None:
        """Kill parts, and wait until others have taken their place."""
        before = {part: self.pid(part) for part in parts}
        for pid in before.values():
            os.kill(pid, signal.SIGKILL)
        until(lambda: all(self.pid(part) != pid for part, pid in before.items()))

    def states(self, dag: str, run: str) -> dict[str, int]:
        """Count the tasks of a run by state."""
        path = f"dags/{dag}/dagRuns/{quote(run, safe='')}/taskInstances?limit=200"
        found = self.api.ask("GET", path)["task_instances"]
        return dict(Counter(each["state"] for each in found))

    def xcom(self, dag: str, run: str, task: str) -> Any:  # what the task returned
        """Return what a task of a run returned."""
        path = f"dags/{dag}/dagRuns/{quote(run, safe='')}/taskInstances/{task}/xcomEntries/return_value"
        return self.api.ask("GET", f"{path}?deserialize=true")["value"]

    def broker(self) -> Broker:
        """Open its store; the engine runs beside it."""
        return txsaga.connect(roles=False, answering=False, env=self.env)

    def _ended(self, dag: str, run: str) -> str | None:
        found = self.api.run(dag, run)
        return found["state"] if found and found["state"] in ENDED else None


@contextmanager
def hosted(
    said: Mapping[str, str] | None = None,
    dags: Path = DAGS,
    prepare: Callable[[EmbeddedServer], Mapping[str, str]] | None = None,
) -> Iterator[HostedAirflow]:
    """Give a running Airflow."""
    with temporary_home() as pg_home:
        folder = Path(tempfile.mkdtemp(prefix="txsaga-airflow-"))
        env = settings(pg_home, folder / "home") | dict(said or {})
        if prepare is not None:
            env |= prepare(EmbeddedServer(home=pg_home))
        host = HostedAirflow(home=AirflowHome(root=folder / "home"), env=env, port=free_port())
        try:
            started = _up(host, dags)
            assert started.code == 0, started.err
            yield host
        finally:
            host.command("down")
            processes.end(host.home, patience=1)
            shutil.rmtree(folder, ignore_errors=True)


def settings(pg_home: Path, home: Path) -> dict[str, str]:
    """Return an environment with homes of its own, and nothing of another Airflow's."""
    env = environment(TXSAGA_PG_HOME=str(pg_home), TXSAGA_AIRFLOW_HOME=str(home))
    env = {name: value for name, value in env.items() if not name.startswith("AIRFLOW")}
    return env | {"PYTHONPATH": os.pathsep.join(filter(None, [str(Path.cwd()), env.get("PYTHONPATH")]))}


def until(found: Callable[[], Any], patience: float = PATIENCE) -> Any:  # what is found
    """Look until there is something."""
    deadline = time.monotonic() + patience
    while not (what := _tried(found)):
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.1)
    return what


def _tried(found: Callable[[], Any]) -> Any:  # what is found
    from txsaga.errors import HostFailed

    try:
        return found()
    except HostFailed:
        return None


def _up(host: HostedAirflow, dags: Path) -> Said:
    import subprocess

    from tests.cli.program import COMMAND

    words = [*COMMAND, "airflow", "up", "--port", str(host.port), "--dags", str(dags), "--patience", "150"]
    done = subprocess.run(words, env=dict(host.env), capture_output=True, text=True, timeout=170)
    return Said(code=done.returncode, out=done.stdout, err=done.stderr)
