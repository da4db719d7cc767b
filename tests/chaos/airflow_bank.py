"""The example DAG `bank_transfer` in an Airflow with real processes: somebody is killed at one of its nine events."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, text

from tests.airflow_host.hosts import HostedAirflow, hosted, until
from tests.chaos.holding import HOLD
from tests.cli.program import run as run_command
from txsaga.airflow_host.processes import AirflowPart
from txsaga.embedded.server import EmbeddedServer

DAG = "bank_transfer"
DAGS = Path(__file__).parents[2] / "dags"
BANKS = CURRENT, MORTGAGE, AUDIT = "bank_current", "bank_mortgage", "bank_audit"
EVENTS = (
    "begin",
    "debit",
    "audit_begun",
    "credit",
    "fee",
    "audit_booked",
    "commit_audit",
    "publish_transfers",
    "end",
)
CENTS, FEE = 100, 1
SETTLED = 300.0
"""Seconds after which the engine has settled what nobody ended."""
HELD_LOCKS = "SELECT count(*) FROM pg_prepared_xacts"
MOVED = "SELECT coalesce(sum(cents), 0) FROM account"
NOTES = "SELECT count(*) FROM audit WHERE run = :run"


class Victim(StrEnum):
    """Who is killed."""

    TASK = "task"
    WORKER = "worker"
    SCHEDULER = "scheduler"
    TRIGGERER = "triggerer"
    DAG_PROCESSOR = "dag-processor"
    API_SERVER = "api-server"
    ENGINE = "engine"
    DATABASE = "PostgreSQL"
    TWO = "scheduler and triggerer"


PARTS: Mapping[Victim, tuple[AirflowPart, ...]] = {
    **{Victim(part.value): (part,) for part in AirflowPart},
    Victim.TWO: (AirflowPart.SCHEDULER, AirflowPart.TRIGGERER),
}


@dataclass(frozen=True, slots=True)
class Bank:
    """A running Airflow, the databases of the bank, and the folder by which a task is held."""

    host: HostedAirflow
    folder: Path

    def killed_at(self, event: str, victim: Victim) -> str:
        """Run a transfer, kill somebody at an event, and return what is wrong when all is back, or nothing."""
        for each in ("held", "go", "pid"):
            (self.folder / each).unlink(missing_ok=True)
        (self.folder / "task").write_text(event)
        before = self.moved()
        run = self.host.trigger(DAG, cents=CENTS)
        kill(self.host, victim, until(lambda: held_in(self.folder)))
        (self.folder / "go").touch()
        return self.judged(run, self.host.end_of(DAG, run), before)

    def judged(self, run: str, state: str, before: tuple[int, int]) -> str:
        """Look whether all of a run is there or nothing of it, as its state says."""
        decision = str(until(lambda: decision_of(self.host, run), SETTLED))
        until(lambda: int(self.ask(CURRENT, HELD_LOCKS)) == 0)
        wanted = (-CENTS, CENTS - FEE, 1) if decision == "COMMIT" else (0, 0, 0)
        after = self.moved()
        found = (after[0] - before[0], after[1] - before[1], self._told(run))
        notes = self.ask(AUDIT, NOTES, run=run)
        return "; ".join(
            what
            for what, wrong in {
                f"run {state}, but {decision} stands": (state == "success") != (decision == "COMMIT"),
                f"{decision} stands, but moved and told are {found}": found != wanted,
                f"{notes} notes in the audit": notes != 2 if decision == "COMMIT" else notes not in (0, 2),
            }.items()
            if wrong
        )

    def moved(self) -> tuple[int, int]:
        """Return what both accounts hold together."""
        return int(self.ask(CURRENT, MOVED)), int(self.ask(MORTGAGE, MOVED))

    def ask(self, bank: str, question: str, **parameters: object) -> Any:  # whatever a column holds
        """Ask a database of the bank."""
        engine = create_engine(self.host.env[f"TXSAGA_RESOURCE_{bank.upper()}"])
        try:
            with engine.connect() as connection:
                return connection.execute(text(question), parameters).scalar()
        finally:
            engine.dispose()

    def _told(self, run: str) -> int:
        said = run_command("tail", "transfers", "--json", env=self.host.env)
        return sum(run in json.dumps(message) for message in said.documents)


@contextmanager
def bank(folder: Path) -> Iterator[Bank]:
    """Give the bank with its accounts opened."""
    held = {"TXSAGA_OBSERVERS": "tests.chaos.holding:hold", HOLD: str(folder)}
    with hosted(held, DAGS, prepare=_databases) as host:
        with host.broker() as broker:
            broker.create_topic("transfers", "transaction")
        assert host.end_of("bank_open", host.trigger("bank_open")) == "success"
        yield Bank(host, folder)


def held_in(folder: Path) -> int | None:
    """Return the process that is held."""
    try:
        return int((folder / "pid").read_text().split()[0])
    except (OSError, IndexError):
        return None


def kill(host: HostedAirflow, victim: Victim, held: int) -> None:
    """Kill somebody while a process is held, and wait until another has taken its place."""
    match victim:
        case Victim.TASK:
            os.kill(held, signal.SIGKILL)
        case Victim.WORKER:
            os.kill(_worker_of(held), signal.SIGKILL)
        case Victim.DATABASE:
            _kill_database(host)
        case _:
            host.kill(*PARTS[victim])


def decision_of(host: HostedAirflow, run: str) -> str | None:
    """Return what was decided of a run."""
    said = run_command("tx", "list", "--json", env=host.env)
    found = [view for view in json.loads(said.out) if run in (view["key"] or "")]
    return found[0]["decision"] if found else None


def _kill_database(host: HostedAirflow) -> None:
    server = EmbeddedServer.from_env(host.env)
    pid = server.status().pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: server.status().running and server.status().pid != pid)


def _databases(server: EmbeddedServer) -> Mapping[str, str]:
    server.ensure()
    return {f"TXSAGA_RESOURCE_{name.upper()}": server.database(name).url(name) for name in BANKS}


def _worker_of(pid: int) -> int:
    """Return what supervises the task that a process is, or that a driver is of."""
    driver = b"txsaga.spark" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return _parent(_parent(pid)) if driver else _parent(pid)


def _parent(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])
