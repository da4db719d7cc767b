"""Words about branches that meet in one batch, or meet rows that others have."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import text

from tests.contracts.branch_contract import FIRST_OF, begun, said, states, written
from tests.contracts.samples import new_queues, read, row
from tests.scene.stored import Stored
from txsaga.core.decision import Decision
from txsaga.errors import Superseded
from txsaga.flows.branch import BranchEvent, BranchState
from txsaga.flows.requests import BranchOutcome
from txsaga.store.store import Store

pytestmark = pytest.mark.postgres

COMMIT, ROLLBACK = Decision.COMMIT, Decision.ROLLBACK


@pytest.mark.parametrize("turn", [1, -1], ids=["superseded first", "owner first"])
@pytest.mark.parametrize(("early", "late"), [(COMMIT, ROLLBACK), (COMMIT, COMMIT), (ROLLBACK, COMMIT)])
def test_the_word_of_the_owner_counts_beside_that_of_one_who_was(
    store: Store, home_url: str, early: Decision, late: Decision, turn: int
) -> None:
    (qid,), life = new_queues(store), begun(store)
    Stored(home_url).rows(f"update tx set owner = 2 where txid = {life.txid}")
    both = [said(life, early, [row(qid, "a")], FIRST_OF), said(replace(life, owner=2), late, [row(qid, "b")])]
    superseded, owner = store.work.write(both[::turn])[::turn]
    assert isinstance(superseded, Superseded)
    assert owner is late
    with store.ledgers.open() as ledger:
        assert ledger.standing(life.txid) is late
    assert read(store, qid) == (["b"] if late is COMMIT else [])
    assert BranchState.PREPARED not in states(store, life)


def test_the_word_of_one_who_was_alone_changes_nothing(store: Store, home_url: str) -> None:
    life = begun(store)
    Stored(home_url).rows(f"update tx set owner = 2 where txid = {life.txid}")
    (answer,) = store.work.write([said(life, COMMIT)])
    assert isinstance(answer, Superseded)
    with store.ledgers.open() as ledger:
        assert ledger.standing(life.txid) is None


@pytest.mark.parametrize("events", [(BranchEvent.FORGET, BranchEvent.COMMIT), (BranchEvent.COMMIT, BranchEvent.FORGET)])
def test_of_two_notes_the_one_that_can_be_counts(store: Store, events: tuple[BranchEvent, ...]) -> None:
    life = begun(store)
    written(store, said(life, COMMIT, votes=FIRST_OF))
    store.work.write([BranchOutcome(life.txid, 1, 1, each) for each in events])
    assert states(store, life)[0] is BranchState.COMMITTED


def test_of_two_notes_that_can_be_the_first_counts(store: Store) -> None:
    life = begun(store)
    written(store, said(life, COMMIT, votes=FIRST_OF))
    store.work.write([BranchOutcome(life.txid, 1, 1, each) for each in (BranchEvent.FIND_HAZARD, BranchEvent.COMMIT)])
    assert states(store, life)[0] is BranchState.HEURISTIC_HAZARD


def test_a_note_waits_for_no_row_that_it_does_not_change(store: Store) -> None:
    life = begun(store)
    written(store, said(life, COMMIT, votes=FIRST_OF))
    note = BranchOutcome(life.txid, 1, 1, BranchEvent.COMMIT)
    assert store.work.write([note]) == [True]
    with ThreadPoolExecutor(1) as beside, store.engine.begin() as connection:
        place = f'"{store.namespace}".branch'
        connection.execute(text(f"select from {place} where txid = {life.txid} for update"))
        assert beside.submit(store.work.write, [note]).result(4) == [False]
