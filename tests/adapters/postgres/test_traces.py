"""Traces on PostgreSQL: remarks where the schema keeps some, and offsets that are found without reading the log."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.engine.stored import Stored
from txsaga.adapters.postgres.store import PostgresStore
from txsaga.model.asking import Remark
from txsaga.model.steps import steps_of
from txsaga.testing.samples import (
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
from txsaga.testing.trace_contract import told, trace_of
from txsaga.wiring import open_store

pytestmark = pytest.mark.postgres

REMARKS = [
    {"at": "2026-01-01T12:00:00.25+00:00", "member": "anna-1", "answer": "UNKNOWN", "why": "the checker said UNKNOWN"},
    {"at": "2026-01-01T12:01:00+00:00", "member": None, "answer": "UNKNOWN", "why": "nobody answered"},
]


@pytest.fixture
def store(home_url: str) -> Iterator[PostgresStore]:
    store = open_store(home_url)
    yield store
    store.close()


@pytest.fixture
def stored(home_url: str) -> Stored:
    return Stored(home_url)


@pytest.mark.req("IBM-42")
def test_remarks_are_told_where_the_list_of_doubts_keeps_some(store: PostgresStore, stored: Stored) -> None:
    (qid,), group = new_queues(store), new_group(store)
    receipt = prepared(store, group, row(qid, "a"))
    swept(store, group)
    stored.rows("ALTER TABLE doubt ADD COLUMN IF NOT EXISTS remarks jsonb")
    stored.rows("UPDATE doubt SET checks = 2, remarks = CAST(:r AS jsonb)", r=json.dumps(REMARKS))
    listed = trace_of(store, receipt.txid).listed
    assert listed is not None
    assert [(remark.who, remark.answer, remark.why) for remark in listed.remarks] == [
        ("anna-1", "UNKNOWN", "the checker said UNKNOWN"),
        ("", "UNKNOWN", "nobody answered"),
    ]
    assert isinstance(listed.remarks[0], Remark)
    checks = [step for step in steps_of(trace_of(store, receipt.txid)) if step.what == "check: UNKNOWN"]
    assert [str(step.at) for step in checks] == ["2026-01-01 12:00:00.250000+00:00", "2026-01-01 12:01:00+00:00"]


def test_offsets_are_found_even_if_the_clock_was_put_back(store: PostgresStore, stored: Stored) -> None:
    (qid,), group = new_queues(store), new_group(store)
    receipt = prepared(store, group, row(qid, "a"))
    decided(store, end_of(receipt, COMMIT))
    published(store, group, row(qid, "b"))
    drain(store)
    stored.rows("UPDATE half SET born = born + interval '1 hour' WHERE txid = :t", t=receipt.txid)
    assert "offset 0 of orders/0 given out" in told(store, receipt.txid)


def test_offsets_that_retention_has_dropped_are_told_no_more(store: PostgresStore, stored: Stored) -> None:
    (qid,), group = new_queues(store), new_group(store)
    receipt = published(store, group, row(qid, "a"))
    drain(store)
    stored.rows("DELETE FROM log")
    assert told(store, receipt.txid) == ["1 message to orders/0", "COMMIT"]
