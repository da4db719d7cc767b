"""What the store in memory promises beyond the ports: its clock, its audit rows, its stand against misuse."""

from datetime import datetime, timedelta

import pytest

from tests.contracts.samples import (
    COMMIT,
    PATIENCE,
    decide_life,
    is_held,
    new_group,
    new_queues,
    opened,
    prepared,
    published,
    read,
    row,
    settle,
    start,
)
from tests.oracle import MemoryStore
from txsaga.core.records import Half
from txsaga.errors import Superseded
from txsaga.store.store import Store
from txsaga.testing import FakeClock
from txsaga.testing.clock import START

MIN_AGE = timedelta(seconds=6)


def test_times_are_the_clocks() -> None:
    clock = FakeClock()
    store: Store = MemoryStore(clock)
    (qid,), group = new_queues(store), new_group(store)
    clock.advance(90)
    receipt = prepared(store, group, row(qid, "a"))
    assert store.halves.views(receipt.txid)[0].born == START + timedelta(seconds=90)


def test_without_a_clock_times_have_a_zone() -> None:
    store = MemoryStore()
    (qid,), group = new_queues(store), new_group(store)
    born = store.halves.views(prepared(store, group, row(qid, "a")).txid)[0].born
    assert born.utcoffset() == timedelta(0)


def test_a_clock_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        FakeClock(datetime(2026, 1, 1))  # noqa: DTZ001  # what is refused here


@pytest.mark.req("RMQ-29")
def test_a_half_is_in_doubt_from_its_age_on_and_not_before() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    (qid,), group = new_queues(store), new_group(store)
    old = prepared(store, group, row(qid, "a"))
    clock.advance(4)
    prepared(store, group, row(qid, "b"))
    clock.advance(1.9)
    assert store.doubts.sweep(MIN_AGE) == 0
    clock.advance(0.1)
    assert store.doubts.sweep(MIN_AGE) == 1
    assert [doubt.txid for doubt in store.doubts.due(10)] == [old.txid]


def test_a_store_may_reject_halves_from_the_start() -> None:
    store = MemoryStore(rejecting=True)
    assert store.registry.rejects_transactions


def test_numbers_begin_with_one() -> None:
    store = MemoryStore()
    (qid,), group = new_queues(store), new_group(store)
    assert [prepared(store, group, row(qid, "a")).txid for _ in range(3)] == [1, 2, 3]


def test_a_decision_leaves_an_audit_row() -> None:
    store = MemoryStore()
    life = opened(store, new_group(store))
    settle(store, life, COMMIT)
    assert [(audit.txid, audit.event, audit.who) for audit in store.audits] == [(life.txid, "decided", "contract")]


@pytest.mark.rule("R3")
def test_a_superseded_owner_adds_nothing() -> None:
    store = MemoryStore()
    (qid,), group = new_queues(store), new_group(store)
    first = opened(store, group)
    with store.ledgers.open() as ledger:
        ledger.take_over(first.txid)
    with pytest.raises(Superseded), store.ledgers.open() as ledger:
        ledger.add(first, 1, [row(qid, "a")])
    assert not store.halves.views(first.txid)


def test_a_write_beside_an_open_block_of_the_same_thread_is_refused() -> None:
    store = MemoryStore()
    (qid,), group = new_queues(store), new_group(store)
    half = Half(group, [row(qid, "a")])
    store.queues.create_cursors("billing", {qid: 0})
    with store.ledgers.open():
        for write in (
            lambda: store.halves.write([half], ()).receipts,
            lambda: store.halves.write((), []).standings,
            lambda: store.queues.release("billing", "anna", qid),
            lambda: store.log.wait(0),
            lambda: opened(store, group),
        ):
            with pytest.raises(RuntimeError, match="ledger block is open"):
                write()
    assert published(store, group, row(qid, "b")).txid == 1


def test_the_thread_of_a_block_sees_what_was_there_before_it() -> None:
    store = MemoryStore()
    (qid,), group = new_queues(store), new_group(store)
    life = opened(store, group)
    with store.ledgers.open() as ledger:
        ledger.add(life, 1, [row(qid, "a")])
        decide_life(ledger, life.txid, COMMIT)
        assert not store.halves.views(life.txid)
        view = store.overview.transaction(life.txid)
        assert view is not None
        assert view.decision is None


def test_everybody_else_waits_for_an_open_block() -> None:
    store = MemoryStore()
    (qid,), group = new_queues(store), new_group(store)
    with store.ledgers.open():
        other = start(lambda: published(store, group, row(qid, "a")))
        assert is_held(other)
    assert other.result(PATIENCE).txid == 1
    assert read(store, qid) == ["a"]
