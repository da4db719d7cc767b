"""
The supervisor of an Airflow on one machine: `python -m txsaga.provider.supervisor`, started by `txsaga airflow up`.

It imports once what all parts of Airflow need, migrates Airflow's database, and forks the parts: a process forked from
here is ready in half the time and shares two thirds of its memory. So this process must start no thread and keep no
connection: a fork would inherit them in an unusable state.

It restarts parts that die, and stops all of them on request. Each part is its own process session. When a part dies,
its session is ended before the part is restarted: a worker whose scheduler is gone would wait for ever; Airflow retries
its task. If the supervisor itself is killed, the operating system signals the parts and they end; the next start ends
whatever is left over. When the database comes back on another port, the addresses given to the parts are wrong: the
supervisor stops the parts and restarts itself with the right ones.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from types import FrameType

from txsaga.airflow_host import processes
from txsaga.airflow_host.home import EMBEDDED, STORE_OF_HOST, AirflowHome
from txsaga.airflow_host.host import METADATA, Host
from txsaga.airflow_host.processes import AirflowPart, PartRecord, RunningPart
from txsaga.embedded.server import EmbeddedServer
from txsaga.errors import EmbeddedDatabaseError

logger = logging.getLogger("txsaga")
PAUSE = 0.1
SETTLED = 60.0
"""Seconds: a part that ran longer is restarted at once."""
LONGEST = 30.0
PR_SET_PDEATHSIG = 1
LOOKS = 2.0
"""Seconds between two checks of the database."""
CONNECTION = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
SHARED = (
    "airflow.settings",
    "airflow.jobs.scheduler_job_runner",
    "airflow.jobs.triggerer_job_runner",
    "airflow.dag_processing.manager",
    "airflow.executors.local_executor",
    "airflow.api_fastapi.app",
    "uvicorn",
    # Every step of a flow needs these; forked workers do not have to import them for each task.
    "psycopg",
    "sqlalchemy.dialects.postgresql.psycopg",
    "airflow.sdk.bases.hook",
    "airflow.sdk.definitions.connection",
    "txsaga.wiring",
    "txsaga.provider.flow_dag",
    "txsaga.provider.operators.flow",
    "txsaga.provider.operators.messages",
    "txsaga.provider.operators.call",
    "txsaga.provider.operators.sql",
)
NOWHERE = "postgresql+psycopg://nobody:nothing@127.0.0.1:1/nothing"


def load() -> None:
    """Import what every part needs, and do once what each task would do: read all revisions, make an engine."""
    for module in SHARED:
        import_module(module)
    from airflow import settings

    from txsaga.store import migrate
    from txsaga.wiring.resources import resource_engine

    migrate.newest()
    resource_engine(NOWHERE, "nowhere").dispose()
    gc.freeze()
    settings.dispose_orm(do_log=False)


def is_migrated(metadata: str) -> bool:
    """Return whether the database has the schema of this Airflow version."""
    import psycopg
    from airflow.utils.db import _REVISION_HEADS_MAP

    head = list(_REVISION_HEADS_MAP.values())[-1]
    with psycopg.connect(metadata.replace("+psycopg", "", 1), connect_timeout=10) as connection:
        row = connection.execute("SELECT to_regclass('alembic_version') IS NOT NULL").fetchone()
        if not row or not row[0]:
            return False
        return connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(head,)]


def migrate() -> None:
    """Migrate the database to the schema of this Airflow, in a child process so that this one keeps nothing of it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            from airflow import settings
            from airflow.utils.db import upgradedb

            settings.configure_orm()  # type: ignore[no-untyped-call]
            upgradedb()
            code = 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if status:
        raise SystemExit("the database of Airflow can't be migrated: the lines above say why")


class Supervisor:
    """The parent process of the parts of one home."""

    def __init__(self, home: AirflowHome, run: Callable[[AirflowPart], int]) -> None:
        self._home, self._run = home, run
        self._record = PartRecord(pid=os.getpid())
        self._due: dict[AirflowPart, float] = dict.fromkeys(AirflowPart, 0.0)
        self._stopping = False

    def tell(self, doing: str) -> None:
        """Record what the supervisor is doing before the parts run."""
        logger.info("%s", doing)
        self._record = replace(self._record, doing=doing)
        self._record.write(self._home)

    def watch(self, look: Callable[[], None]) -> None:
        """Keep the parts running until a stop is requested; call `look` in every round to check what else must run."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        self.tell("")
        while not self._stopping:
            self._reap()
            self._start_due()
            look()
            time.sleep(PAUSE)
        self.end()

    def end(self) -> None:
        """Stop all parts."""
        logger.info("stopping")
        parts = [running.pid for running in self._record.parts.values()]
        for pid in parts:
            processes.tell(pid, signal.SIGTERM)
        until = time.monotonic() + 6
        while any(map(processes.is_alive, parts)) and time.monotonic() < until:
            time.sleep(0.02)
        processes.end(self._home, patience=1)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True

    def _start_due(self) -> None:
        due = [part for part, moment in self._due.items() if moment <= time.monotonic()]
        for part in due:
            del self._due[part]
            before = self._record.parts.get(part)
            started = RunningPart(
                pid=self._fork(part), since=time.time(), restarts=before.restarts + 1 if before else 0
            )
            self._record = replace(self._record, parts={**self._record.parts, part: started})
        if due:
            self._record.write(self._home)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            part = next((AirflowPart(name) for name, running in self._record.parts.items() if running.pid == pid), None)
            if part is not None:  # else a child of a part that was killed
                self._died(part, os.waitstatus_to_exitcode(status))

    def _died(self, part: AirflowPart, code: int) -> None:
        running = self._record.parts[part]
        lived = time.time() - running.since
        wait = 0.0 if lived > SETTLED else min(LONGEST, 0.5 * 2 ** min(running.restarts, 10))
        logger.warning("%s exited with %d after %.0f s; it is restarted in %.1f s", part, code, lived, wait)
        processes.end(self._home, patience=1, session=running.pid)
        self._due[part] = time.monotonic() + wait

    def _fork(self, part: AirflowPart) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        child = os.fork()
        if child:
            return child
        code = 1
        try:
            self._settle_in(part, parent)
            code = self._run(part)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _settle_in(self, part: AirflowPart, parent: int) -> None:
        """Make the child a session with its own log that ends when its parent ends."""
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)
        log = os.open(self._home.log_of(part), os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
        os.close(log)


class Database:
    """The embedded database that all parts use, restarted when it dies."""

    def __init__(self, home: AirflowHome, supervisor: Supervisor) -> None:
        self._home, self._supervisor = home, supervisor
        self._server = EmbeddedServer.from_env(os.environ)
        self._next = time.monotonic() + LOOKS

    def look(self) -> None:
        """Restart the database if it died; restart the supervisor if its address has changed."""
        if time.monotonic() < self._next:
            return
        try:
            self._server.ensure(timeout=30)
        except EmbeddedDatabaseError as failure:
            logger.error("the database is not running: %s", failure)
        else:
            if self._server.url(METADATA) != os.environ[CONNECTION]:
                self._begin_anew()
        self._next = time.monotonic() + LOOKS

    def _begin_anew(self) -> None:
        logger.warning("the database restarted at another address; all parts are restarted")
        self._supervisor.end()
        keys = self._home.keys()
        assert keys is not None
        embedded = os.environ.get(STORE_OF_HOST) == EMBEDDED
        store = None if embedded else os.environ.get("TXSAGA_URL")
        settings = Host(self._home, self._server).settings(store, keys, os.environ)
        os.execve(sys.executable, [sys.executable, "-m", "txsaga.provider.supervisor"], settings)


def run(part: AirflowPart) -> int:
    """Run a part until it ends; return its exit code."""
    if not part.is_airflow:
        os.execv(sys.executable, [sys.executable, "-m", "txsaga.cli", *part.command[1:]])
    from airflow import settings
    from airflow.__main__ import main as airflow

    settings.configure_orm()  # type: ignore[no-untyped-call]
    sys.argv = list(part.command)
    try:
        airflow()  # type: ignore[no-untyped-call]
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    return 0


def main() -> int:
    """Import Airflow, migrate its database, run the parts."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    home = AirflowHome.from_env({**os.environ, "TXSAGA_AIRFLOW_HOME": os.environ["AIRFLOW_HOME"]})
    supervisor = Supervisor(home, run)
    supervisor.tell("importing Airflow")
    load()
    if not is_migrated(os.environ[CONNECTION]):
        supervisor.tell("preparing Airflow's database")
        migrate()
    supervisor.watch(Database(home, supervisor).look)
    return 0


if __name__ == "__main__":
    sys.exit(main())
