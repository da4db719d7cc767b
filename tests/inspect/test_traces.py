"""Traces on PostgreSQL: remarks where the schema keeps some, and offsets that are found without reading the log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.contracts.samples import (
    COMMIT,
    decided,
    drain,
    end_of,
    new_group,
    new_queues,
    prepared,
    published,
    row,
    swept,
)
from tests.contracts.trace_contract import told, trace_of
from tests.scene.stored import Stored
from txsaga.checkback.questions import PutOff
from txsaga.inspect.timeline_steps import steps_of
from txsaga.store.store import Store
from txsaga.wiring.connecting import open_store

pytestmark = [pytest.mark.postgres, pytest.mark.core]


@pytest.fixture
def store(home_url: str) -> Iterator[Store]:
    store = open_store(home_url)
    yield store
    store.close()


@pytest.fixture
def stored(home_url: str) -> Stored:
    return Stored(home_url)


@pytest.mark.req("IBM-42")
def test_remarks_are_told(store: Store) -> None:
    (qid,), group = new_queues(store), new_group(store)
    receipt = prepared(store, group, row(qid, "a"))
    swept(store, group)
    for why, counted in (("the checker said UNKNOWN", True), ("nobody answered", False)):
        store.doubts.put_off([PutOff(receipt.txid, timedelta(0), why, counted)])
    listed = trace_of(store, receipt.txid).listed
    assert listed is not None
    assert [(remark.who, remark.answer, remark.why) for remark in listed.remarks] == [
        ("check-back", "UNKNOWN", "the checker said UNKNOWN"),
        ("check-back", "NO_ANSWER", "nobody answered"),
    ]
    steps = [step.what for step in steps_of(trace_of(store, receipt.txid))]
    assert [what for what in steps if what.startswith("check: ")] == ["check: UNKNOWN", "check: NO_ANSWER"]


def test_offsets_are_found_even_if_the_clock_was_put_back(store: Store, stored: Stored) -> None:
    (qid,), group = new_queues(store), new_group(store)
    receipt = prepared(store, group, row(qid, "a"))
    decided(store, end_of(receipt, COMMIT))
    published(store, group, row(qid, "b"))
    drain(store)
    stored.rows("UPDATE half SET born = born + interval '1 hour' WHERE txid = :t", t=receipt.txid)
    assert "offset 0 of orders/0 assigned" in told(store, receipt.txid)


def test_offsets_that_retention_has_dropped_are_told_no_more(store: Store, stored: Stored) -> None:
    (qid,), group = new_queues(store), new_group(store)
    receipt = published(store, group, row(qid, "a"))
    drain(store)
    stored.rows("DELETE FROM log")
    assert told(store, receipt.txid) == ["1 message to orders/0", "COMMIT"]
