"""What every store promises of a trace: everything durable of one transaction, and nothing of another."""

# The name of a test is a sentence.

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.contracts.samples import (
    COMMIT,
    LONG,
    ROLLBACK,
    add,
    answered,
    bound,
    claimed,
    decided,
    drain,
    end_of,
    new_group,
    new_queues,
    opened,
    prepared,
    published,
    row,
    settle,
    swept,
)
from txsaga.core.lifecycle import TxEvent, TxState
from txsaga.core.records import Due, Half, LateSlot
from txsaga.core.topic import TopicType
from txsaga.inspect.timeline_steps import steps_of
from txsaga.inspect.trace import ConsumedOffsets, LateBodySlot, Trace, TracePlace
from txsaga.store.store import Store


def trace_of(store: Store, txid: int) -> Trace:
    """Return the trace of a transaction that is there."""
    trace = store.overview.trace(txid)
    assert trace is not None
    return trace


def told(store: Store, txid: int) -> list[str]:
    """Return what the steps of a transaction say."""
    return [step.what for step in steps_of(trace_of(store, txid))]


class TraceContract:
    """Traces, as the port `Overview` promises them."""

    def test_an_unknown_transaction_has_no_trace(self, store: Store) -> None:
        assert store.overview.trace(12_345) is None

    @pytest.mark.req("IBM-42")
    def test_a_half_is_told_with_its_decision_and_its_offsets(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a", "b"), row(qid, "c", chunk=1))
        published(store, group, row(qid, "another"))
        assert told(store, receipt.txid) == ["3 messages to orders/0"]
        decided(store, end_of(receipt, COMMIT))
        assert told(store, receipt.txid) == ["3 messages to orders/0", "COMMIT"]
        drain(store)
        assert told(store, receipt.txid)[2:] == ["offsets 1 to 3 of orders/0 assigned"]
        trace = trace_of(store, receipt.txid)
        assert trace.op is not None and trace.op.before is not None
        assert trace.sent[0].born <= trace.given[0].at <= trace.op.before
        assert (trace.group, trace.life, trace.resource) == (group, None, None)

    def test_the_last_offset_may_be_far_from_the_first(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("txsaga.inspect.overview_store.NEAR", 2)
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a", "b"), row(qid, "c", chunk=1))
        decided(store, end_of(receipt, COMMIT))
        drain(store)
        assert told(store, receipt.txid)[2:] == ["offsets 0 to 2 of orders/0 assigned"]

    @pytest.mark.req("IBM-42")
    def test_a_rolled_back_half_has_no_offsets(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a"))
        decided(store, end_of(receipt, ROLLBACK, from_check=True))
        published(store, group, row(qid, "another"))
        drain(store)
        assert told(store, receipt.txid) == ["1 message to orders/0", "ROLLBACK, not by its owner"]
        step = steps_of(trace_of(store, receipt.txid))[-1]
        assert step.at is None and step.before is not None  # some tick had seen it then

    @pytest.mark.req("IBM-42")
    @pytest.mark.rule("R4")
    def test_a_keyed_transaction_is_told_with_all_its_attempts(self, store: Store) -> None:
        one, two = new_queues(store, count=2)
        life = opened(store, new_group(store))
        add(store, life, 1, row(one, "old"), win=False)
        with store.ledgers.open() as ledger:
            ledger.lock(life.txid)
            second = ledger.take_over(life.txid)
        add(store, second, 1, row(two, "new"))
        settle(store, second, COMMIT)
        drain(store)
        trace = trace_of(store, life.txid)
        assert [(sent.attempt, sent.counts) for sent in trace.sent] == [(1, False), (2, True)]
        assert trace.life is not None
        assert (trace.life.owner, trace.life.state, trace.life.key) == (2, TxState.COMMITTED, "order-42")
        assert [given.place for given in trace.given] == [TracePlace("orders", 1)]
        assert [audit.what for audit in trace.audits] == ["decided"]

    def test_late_bodies_and_consumed_offsets_are_told_while_they_wait(self, store: Store) -> None:
        (source,), (qid,) = new_queues(store, "source"), new_queues(store)
        group = new_group(store)
        published(store, group, row(source, "x", "y", "z"))
        drain(store)
        life = opened(store, group)
        with store.ledgers.open() as ledger:
            ledger.share(life.txid)
            ledger.reserve(LateSlot(txid=life.txid, slot=1, qid=qid))
        bound(store, life, claimed(store, source), 2)
        trace = trace_of(store, life.txid)
        assert trace.kept == (LateBodySlot(1, TracePlace("orders", 0)),)
        assert trace.bound == (ConsumedOffsets("billing", "anna", TracePlace("source", 0), 0, 1),)
        settle(store, life, ROLLBACK)
        assert trace_of(store, life.txid).bound == ()

    def test_the_resource_of_local_work_is_told(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        resource = store.registry.resource("billing", store.registry.identity.uuid)
        receipt = answered(store.halves.write([Half(group, [row(qid, "a")], resource.id)], ()).receipts[0])
        life = opened(store, group)
        with store.ledgers.open() as ledger:
            ledger.lock(life.txid)
            ledger.move(life.txid, TxEvent.SEAL, evidence=resource.id)
        assert [trace_of(store, txid).resource for txid in (receipt.txid, life.txid)] == [resource, resource]

    @pytest.mark.req("RMQ-27")
    def test_a_doubt_is_told_until_it_is_decided(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a"))
        assert trace_of(store, receipt.txid).listed is None
        swept(store, group)
        listed = trace_of(store, receipt.txid).listed
        assert listed is not None
        assert (listed.asked, listed.parked, list(listed.remarks)) == (0, None, [])
        decided(store, end_of(receipt, ROLLBACK, from_check=True))
        assert trace_of(store, receipt.txid).listed is None

    def test_a_message_for_later_is_due_until_it_is_decided(self, store: Store) -> None:
        (qid,) = store.registry.create_topic("reminders", TopicType.DELAY, 1).qids
        half = Half(new_group(store), [row(qid, "a")], due=Due(LONG))
        receipt = answered(store.halves.write([half], ()).receipts[0])
        trace = trace_of(store, receipt.txid)
        assert trace.due is not None
        assert abs(trace.due - trace.sent[0].born - LONG) < timedelta(seconds=10)
        assert told(store, receipt.txid) == ["1 message to reminders/0 for later", "due"]
        decided(store, end_of(receipt, ROLLBACK)._replace(recalls=True))
        assert told(store, receipt.txid) == ["1 message to reminders/0 for later", "ROLLBACK: recalled"]

    @pytest.mark.req("BEYOND-5")
    def test_what_was_recorded_is_told_with_who_and_why(self, store: Store) -> None:
        life = opened(store, new_group(store))
        with store.ledgers.open() as ledger:
            ledger.record(life.txid, "LOOKED", who="anna", why="it is old")
        (step,) = [step for step in steps_of(trace_of(store, life.txid)) if step.what == "LOOKED"]
        assert (step.who, step.why) == ("anna", "it is old")
