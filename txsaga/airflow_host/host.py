"""
Starts, watches and stops the Airflow of one home.

It starts one process, the supervisor, which keeps running on its own; all other processes are the supervisor's. A start
that dies half-way leaves processes with the mark of the home: the next start ends them first.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

from txsaga.airflow_host import processes
from txsaga.airflow_host.home import EMBEDDED, STORE_OF_HOST, AirflowHome, Keys, environment
from txsaga.airflow_host.processes import SHARED_LOG, AirflowPart, PartRecord
from txsaga.airflow_host.rest import Airflow
from txsaga.core.clock import wall_clock
from txsaga.embedded.launch import is_free
from txsaga.embedded.server import EmbeddedServer
from txsaga.errors import ConfigError, EmbeddedDatabaseError, HostFailed

METADATA = "airflow"
"""Airflow's own database."""
STORE = "txsaga"
"""The database of the store, if that is the embedded one."""
SUPERVISOR = "txsaga.provider.supervisor"
PORTS = range(8080, 8180)
HEARTBEATS = {
    AirflowPart.SCHEDULER: ("scheduler", "latest_scheduler_heartbeat"),
    AirflowPart.DAG_PROCESSOR: ("dag_processor", "latest_dag_processor_heartbeat"),
    AirflowPart.TRIGGERER: ("triggerer", "latest_triggerer_heartbeat"),
}
PAUSE = 0.2
LATE = 90.0
"""Seconds without a heartbeat after which a part is not healthy."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartStatus:
    """The state of one part."""

    part: AirflowPart
    pid: int | None
    healthy: bool
    restarts: int


class Host:
    """The Airflow of one home."""

    def __init__(self, home: AirflowHome, server: EmbeddedServer) -> None:
        self.home, self._server = home, server

    def up(
        self,
        *,
        store: str | None,
        port: int | None,
        dags: Path | None,
        patience: float,
        env: Mapping[str, str],
        tell: Tell,
    ) -> Keys:
        """Start Airflow unless it runs; return when every part is healthy."""
        if dags is not None and not dags.is_dir():
            raise ConfigError(f"--dags {dags} is not a folder: pass the folder with your DAG files")
        self.home.create()
        with self._alone():
            running = self.supervisor()
            keys = self._as_it_runs(port, dags) if running else self._start(store, port, dags, env, tell)
        self._until_ready(keys, time.monotonic() + patience, tell)
        return keys

    def down(self) -> int:
        """Stop every process of this home; return how many there were."""
        if not self.home.root.exists():
            return 0
        with self._alone():
            there = len(list(processes.processes(self.home)))
            if (record := self.supervisor()) is not None:
                processes.tell(record.pid, signal.SIGTERM)
                until = time.monotonic() + 20
                while processes.is_alive(record.pid) and time.monotonic() < until:
                    time.sleep(0.05)
            processes.end(self.home)
            self.home.record_file.unlink(missing_ok=True)
        return there

    def supervisor(self) -> PartRecord | None:
        """Return the record of a living supervisor."""
        record = PartRecord.read(self.home)
        alive = record is not None and any(found.pid == record.pid for found in processes.processes(self.home))
        return record if alive else None

    def status(self) -> list[PartStatus]:
        """Return for each part whether it runs and sends heartbeats."""
        record, keys = self.supervisor(), self.home.keys()
        heard = self._heard(keys) if record and keys else {}
        found = []
        for part in AirflowPart:
            running = record.parts.get(part) if record else None
            pid = running.pid if running and processes.is_alive(running.pid) else None
            fresh = part is AirflowPart.ENGINE or wall_clock().timestamp() - heard.get(part, 0.0) < LATE
            restarts = running.restarts if running else 0
            found.append(PartStatus(part=part, pid=pid, healthy=pid is not None and fresh, restarts=restarts))
        return found

    def settings(self, store: str | None, keys: Keys, env: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the parts; create and start Airflow's own database.

        The embedded store is passed as an address too: a task that had to find it would need a tenth of a second.
        """
        server = self._server.ensure().database(METADATA)
        metadata = server.url(METADATA, driver=None)
        if store is None:
            folder = str(server.home / "warehouse")
            env = {"TXSAGA_WAREHOUSE": folder, **env, STORE_OF_HOST: EMBEDDED}
            store = _embedded_store(server)
        return environment(self.home, keys, metadata=metadata, store=store, pg_home=server.home, given=env)

    def _as_it_runs(self, port: int | None, dags: Path | None) -> Keys:
        if (keys := self.home.keys()) is None:
            raise HostFailed(
                f"{self.home.keys_file} is missing while Airflow runs: run `txsaga airflow down`, then start it again"
            )
        asked = {port or keys.port, str(dags.absolute()) if dags else keys.dags}
        if asked != {keys.port, keys.dags}:
            raise HostFailed(
                f"Airflow runs already, on port {keys.port} with the DAGs of {keys.dags}: "
                "`txsaga airflow down` first, or leave --port and --dags out"
            )
        return keys

    def _start(
        self, store: str | None, port: int | None, dags: Path | None, env: Mapping[str, str], tell: Tell
    ) -> Keys:
        if find_spec("airflow") is None:
            raise ConfigError("Airflow is not installed: pip install 'txsaga[airflow]'")
        if left := processes.end(self.home, patience=2):
            tell(f"ended {left} processes that an earlier start left")
        known = self.home.keys()
        keys = self.home.prepared(port=_port(port, known.port if known else PORTS[0], tell), dags=dags)
        tell("starting the database")
        settings = self.settings(store, keys, env)
        tell("starting Airflow")
        with self.home.log_of(SHARED_LOG).open("ab") as log:
            supervisor = subprocess.Popen(
                [sys.executable, "-m", SUPERVISOR],
                env=settings, cwd=self.home.root, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        PartRecord(pid=supervisor.pid, doing="importing Airflow").write(self.home)
        supervisor.returncode = 0  # it keeps running; this process won't wait for it
        return keys

    def _until_ready(self, keys: Keys, deadline: float, tell: Tell) -> None:
        told = ""
        while True:
            if (record := self.supervisor()) is None:
                raise HostFailed(f"Airflow did not start: {self._last_words()} (see {self.home.log_of(SHARED_LOG)})")
            missing = [part for part in AirflowPart if part not in record.parts] or self._silent(keys, record)
            if not missing:
                tell("building the interface for tasks")
                return self._warm_up(keys, deadline)
            doing = record.doing or f"waiting for {', '.join(missing)}"
            if doing != told:
                tell(told := doing)
            if time.monotonic() > deadline:
                raise HostFailed(
                    f"Airflow is not ready in time, {', '.join(missing)} sent no heartbeat: see the logs in "
                    f"{self.home.logs}, or try again with a longer --patience"
                )
            time.sleep(PAUSE)

    def _warm_up(self, keys: Keys, deadline: float) -> None:
        while True:
            try:
                return Airflow(keys.url(), patience=max(1.0, deadline - time.monotonic())).warm_up()
            except HostFailed:
                if time.monotonic() > deadline:
                    raise
                time.sleep(PAUSE)

    def _silent(self, keys: Keys, record: PartRecord) -> list[AirflowPart]:
        """Return the parts without a heartbeat since they were started."""
        heard = self._heard(keys)
        if AirflowPart.API_SERVER not in heard:
            return [AirflowPart.API_SERVER]
        return [part for part in HEARTBEATS if heard.get(part, 0.0) < record.parts[part].since]

    def _heard(self, keys: Keys) -> dict[AirflowPart, float]:
        try:
            health = Airflow(keys.url(), patience=2).health()
        except HostFailed:
            return {}
        heard = {AirflowPart.API_SERVER: wall_clock().timestamp()}
        for part, (name, beat) in HEARTBEATS.items():
            moment = (health.get(name) or {}).get(beat)
            if moment:
                heard[part] = datetime.fromisoformat(moment).timestamp()
        return heard

    def _last_words(self) -> str:
        try:
            lines = self.home.log_of(SHARED_LOG).read_text("utf-8", errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return lines[-1] if lines else "no output"

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes from starting or stopping this home."""
        descriptor = os.open(self.home.root / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _embedded_store(server: EmbeddedServer) -> str:
    server.database(STORE)
    try:
        return server.url(STORE, socket=True)
    except EmbeddedDatabaseError:  # a path may be too long for a socket
        return server.url(STORE)


def _port(asked: int | None, usual: int, tell: Tell) -> int:
    if asked is not None:
        if not is_free(asked):
            raise HostFailed(f"port {asked} of 127.0.0.1 is in use: choose another with --port")
        return asked
    if is_free(usual):
        return usual
    for port in PORTS:
        if is_free(port):
            tell(f"port {usual} is taken, taking {port}")
            return port
    raise HostFailed(f"no port from {PORTS[0]} to {PORTS[-1]} of 127.0.0.1 is free: name one by --port")
