"""
What is written about branches, and about steps, looks at its own rows alone, however many there are.

Each statement is prepared on an empty store, as a session of a young engine has it, and run on a full one. The server
itself counts the rows that it looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple
from uuid import uuid4

import pytest
from psycopg.pq.abc import PGconn

from tests.scene.stored import Stored
from tests.services.databases import fresh_name
from txsaga.core.decision import Decision
from txsaga.core.records import TxRecord
from txsaga.flows.branch import BranchEvent, Vote
from txsaga.flows.requests import (
    Begin,
    BranchOutcome,
    BranchVote,
    Decide,
    RecordSteps,
    Start,
)
from txsaga.flows.step import StepKind
from txsaga.store.pipeline import PipelineConnection, Rows
from txsaga.store.statement import StatementCall
from txsaga.store.store import Store
from txsaga.wiring.connecting import open_store

pytestmark = pytest.mark.postgres

COUNT, SOME = 30_000, 8
FEW = 20 * SOME
RESOURCES = [1, 2]
FILL = f"""
SELECT setval('tx_seq', 2 * {COUNT});
INSERT INTO tx (txid, pgroup, epoch, state) SELECT i, 1, 1, 'active' FROM generate_series(1000, {COUNT}) i;
INSERT INTO branch (txid, number, attempt, resource, state)
SELECT i, n, 1, n, 'prepared' FROM generate_series(1000, {COUNT}) i, generate_series(1, 2) n;
INSERT INTO op (txid, decision, keyed) SELECT i, 1, true FROM generate_series(1000, {COUNT} - 100) i
"""
STEP, NEXT = (Start(number, f"step {number}", StepKind.CALL, compensation="{}") for number in (1, 2))
LOOKED_AT = """
SELECT relname, seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables
 WHERE schemaname = '{s}' AND (relname IN ('tx', 'branch', 'event', 'step', 'saga') OR relname LIKE 'op\\_%')"""


class Filled(NamedTuple):
    """A store with a past."""

    store: Store
    group: int

    def lives(self, first: int) -> list[TxRecord]:
        (life,) = self.store.work.write([Begin(self.group, [])])
        assert isinstance(life, TxRecord)
        return [replace(life, txid=first + at) for at in range(SOME)]

    def _counted(self, server: PGconn) -> dict[str, int]:
        answer = server.exec_(LOOKED_AT.format(s=self.store.namespace).encode())
        rows = [[answer.get_value(at, column) or b"" for column in range(2)] for at in range(answer.ntuples)]
        return {table.decode(): int(count) for table, count in rows}

    def looked_at(self, call: Callable[[], object]) -> dict[str, int]:
        """Do a call and undo it; return how many rows of each table the server looked at."""
        found: dict[str, int] = {}
        exchange = PipelineConnection.exchange

        def watched(line: PipelineConnection, calls: Sequence[StatementCall]) -> list[Rows]:
            server = line.connection().pgconn  # the driver would drop prepared statements behind a rollback
            server.exec_(b"BEGIN")
            before = self._counted(server)
            rows = exchange(line, calls)
            found.update({table: count - before.get(table, 0) for table, count in self._counted(server).items()})
            server.exec_(b"ROLLBACK")
            return rows

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PipelineConnection, "exchange", watched)
            call()
        return found


def word(life: TxRecord, decision: Decision = Decision.COMMIT) -> Decide:
    votes = [BranchVote(number, 1, Vote.PREPARED) for number in RESOURCES]
    return Decide(life, decision, "owner 1", "the block ended", (), votes)


def noted(txids: Sequence[int]) -> list[BranchOutcome]:
    return [BranchOutcome(txid, number, 1, BranchEvent.COMMIT) for txid in txids for number in RESOURCES]


@pytest.fixture(scope="module")
def filled(home_database: str) -> Iterator[Filled]:
    url = f"{home_database}{'&' if '?' in home_database else '?'}namespace={fresh_name('branches')}"
    with closing(open_store(url)) as store:
        group = store.registry.group("shop", transactional=True).id
        for name in ("first", "second"):
            store.registry.resource(name, uuid4())
        begun = store.work.write([Begin(group, RESOURCES)] * 2)
        young = [life for life in begun if isinstance(life, TxRecord)]
        store.work.write([word(life) for life in young])
        store.work.write(noted([life.txid for life in young]))
        opened = [life for life in store.work.write([Begin(group, steps=[STEP])] * 2) if isinstance(life, TxRecord)]
        store.work.write([RecordSteps(life, [NEXT]) for life in opened])
        stored = Stored(url)
        stored.stop_autovacuum()
        for statement in FILL.split(";"):
            stored.rows(statement)
        yield Filled(store, group)


def test_what_became_of_branches_is_noted_by_index(filled: Filled) -> None:
    looked = filled.looked_at(lambda: filled.store.work.write(noted(range(20_000, 20_000 + SOME))))
    assert 0 < looked["branch"] <= FEW, looked
    assert max(looked.values()) <= FEW, looked


def test_the_word_of_an_owner_is_written_by_index(filled: Filled) -> None:
    lives = filled.lives(COUNT - 50)
    looked = filled.looked_at(lambda: filled.store.work.write([word(life) for life in lives]))
    assert 0 < looked["branch"] <= FEW, looked
    assert 0 < looked["tx"] <= FEW, looked
    assert max(looked.values()) <= FEW, looked


def test_further_steps_are_recorded_by_index(filled: Filled) -> None:
    lives = filled.lives(COUNT - 50)
    looked = filled.looked_at(lambda: filled.store.work.write([RecordSteps(life, [STEP]) for life in lives]))
    assert 0 < looked["tx"] <= FEW, looked
    assert max(looked.values()) <= FEW, looked
