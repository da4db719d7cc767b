"""
The example DAG `lake_publish` in an Airflow with real processes: somebody is killed at one of its facts.

Each run has a transfer of its own to post, so that what it would publish is not there yet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from sqlalchemy import create_engine, text

from tests.airflow_host.hosts import ENDED, HostedAirflow, hosted, until
from tests.chaos.airflow_bank import DAGS, HELD_LOCKS, SETTLED, Victim, decision_of, held_in, kill
from tests.chaos.holding import HOLD
from tests.cli.program import run as run_command
from txsaga.consume.dispatcher import Dispatcher
from txsaga.embedded.server import EmbeddedServer
from txsaga.errors import UnknownTable

DAG = "lake_publish"
TOPICS = ("lake_transfers", "lake_spoilt", "lake_books")
REPORTS = "SELECT count(*) FROM report WHERE run = :run"
POSTING, ACCOUNT = "bank.posting", "bank.account"
PATIENCE = 300.0
"""Seconds that a run may take: each attempt of its Spark step starts a JVM."""
_numbers = count(100)


@dataclass(frozen=True, slots=True)
class Lake:
    """A running Airflow, its warehouse, and the folder by which a process is held."""

    host: HostedAirflow
    folder: Path

    def points(self) -> Sequence[str]:
        """Let a run go undisturbed; return its facts."""
        (self.folder / "facts").unlink()  # what opened the lake
        wrong = self._judged(*self._begun())
        assert not wrong, wrong
        found = [line.rpartition(" ")[0] for line in (self.folder / "facts").read_text("utf-8").splitlines()]
        return list(dict.fromkeys(found))

    def killed_at(self, point: str, victim: Victim) -> str | None:
        """Kill somebody at a fact of a run; return what is wrong when all is back, or None where it never came."""
        for each in ("held", "go", "pid"):
            (self.folder / each).unlink(missing_ok=True)
        (self.folder / "point").write_text(point)
        run, before = self._begun()
        until(lambda: held_in(self.folder) or self._ended(run), PATIENCE)
        held = held_in(self.folder)
        if held is not None:
            kill(self.host, victim, held)
        (self.folder / "go").touch()
        wrong = self._judged(run, before)
        return wrong or (None if held is None else "")

    def _begun(self) -> tuple[str, tuple[int, int]]:
        with self.host.broker() as broker:
            transfer = {"id": next(_numbers), "from": "current", "to": "mortgage", "cents": 5}
            with broker.producer("bank", checker=lambda question: None).transaction() as tx:
                tx.send(TOPICS[0], json.dumps(transfer).encode())
            while Dispatcher(broker.kernel).run_once():
                pass
        return self.host.trigger(DAG, fault="none"), self._published()

    def _judged(self, run: str, before: tuple[int, int]) -> str:
        """Look whether all of a run is there or nothing of it, as its state says."""
        state = str(until(lambda: self._ended(run), PATIENCE))
        decision = str(until(lambda: decision_of(self.host, run), SETTLED))
        committed = decision == "COMMIT"
        postings, cents = self._published()
        until(lambda: self._ask(HELD_LOCKS) == 0, SETTLED)
        rows, told = self._ask(REPORTS, run=run), self._told(run)
        return "; ".join(
            what
            for what, wrong in {
                f"run {state}, but {decision} stands": (state == "success") != committed,
                f"{postings} postings behind {before[0]}": (postings > before[0]) != committed,
                f"the accounts come to {cents}": cents != 0,
                f"{told} messages": told != committed,
                f"{rows} rows": rows != committed,
            }.items()
            if wrong
        )

    def _published(self) -> tuple[int, int]:
        """Return how many postings there are, and what the accounts come to, at one moment."""
        with self.host.broker() as broker:
            try:
                with broker.cut(tables=[POSTING, ACCOUNT]) as cut:
                    postings, accounts = (cut.scan(name).to_arrow() for name in (POSTING, ACCOUNT))
            except UnknownTable:
                return 0, 0
        counted = sum(accounts.column("postings").to_pylist())
        assert counted == postings.num_rows, f"{postings.num_rows} postings, and accounts count {counted}"
        return postings.num_rows, sum(accounts.column("cents").to_pylist())

    def _told(self, run: str) -> int:
        said = run_command("tail", TOPICS[2], "--json", env=self.host.env)
        return sum(run in json.dumps(message) for message in said.documents)

    def _ask(self, question: str, **parameters: object) -> int:
        engine = create_engine(self.host.env["TXSAGA_RESOURCE_LAKE_REPORTS"])
        try:
            with engine.connect() as connection:
                return int(connection.execute(text(question), parameters).scalar_one())
        finally:
            engine.dispose()

    def _ended(self, run: str) -> str | None:
        found = self.host.api.run(DAG, run)
        return found["state"] if found and found["state"] in ENDED else None


@contextmanager
def lake(folder: Path) -> Iterator[Lake]:
    """Give the lake with its transfers, and the table of reports."""
    said = {
        "TXSAGA_OBSERVERS": "tests.chaos.noting:note",
        HOLD: str(folder),
        "TXSAGA_WAREHOUSE": str(folder / "warehouse"),
        "TXSAGA_SPARK_MASTER": "local[1]",
    }
    with hosted(said, DAGS, prepare=_database) as host:
        with host.broker() as broker:
            for topic in TOPICS:
                broker.create_topic(topic, type="transaction", queues=1)
        assert host.end_of("lake_open", host.trigger("lake_open")) == "success"
        yield Lake(host, folder)


def _database(server: EmbeddedServer) -> Mapping[str, str]:
    server.ensure()
    return {"TXSAGA_RESOURCE_LAKE_REPORTS": server.database("lake_reports").url("lake_reports")}
