"""What every store promises of ends: they are checked, and the first durable decision stands."""

# The name of a test is a sentence.

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest

from tests.contracts.samples import (
    COMMIT,
    ROLLBACK,
    add,
    decided,
    end_of,
    new_group,
    new_queues,
    opened,
    prepared,
    read,
    row,
)
from tests.contracts.timing import Later
from txsaga.core.decision import Decision, ReplyCode
from txsaga.core.records import DecisionOutcome, Receipt
from txsaga.errors import EndRefused, UnknownTransaction
from txsaga.store.store import Store

BOTH = [COMMIT, ROLLBACK]


class EndContract:
    """Decisions of plain halves, as the port `HalfStore` promises them."""

    @pytest.mark.req("RMQ-92")
    @pytest.mark.parametrize(("first", "late"), list(product(BOTH, BOTH)))
    def test_the_first_decision_stands(self, store: Store, first: Decision, late: Decision) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a"))
        assert decided(store, end_of(receipt, first)) == DecisionOutcome(receipt.txid, first, True)
        assert decided(store, end_of(receipt, late)) == DecisionOutcome(receipt.txid, first, False)
        assert read(store, qid) == (["a"] if first is COMMIT else [])

    @pytest.mark.req("RMQ-92")
    def test_a_late_end_does_not_override_a_check(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a"))
        assert decided(store, end_of(receipt, ROLLBACK, from_check=True)).won
        late = decided(store, end_of(receipt, COMMIT))
        assert (late.decision, late.won, late.code) == (ROLLBACK, False, ReplyCode.SUCCESS)
        assert read(store, qid) == []

    @pytest.mark.req("RMQ-92")
    def test_a_decision_after_its_tick_changes_nothing(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a"))
        decided(store, end_of(receipt, COMMIT))
        assert read(store, qid) == ["a"]
        decided(store, end_of(receipt, ROLLBACK))
        decided(store, end_of(receipt, COMMIT))
        assert read(store, qid) == ["a"]

    def test_two_ends_of_one_half_in_one_batch_get_the_same_decision(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a"))
        answers = store.halves.write((), [end_of(receipt, decision) for decision in [*BOTH, *BOTH]]).standings
        standings = [answer for answer in answers if isinstance(answer, DecisionOutcome)]
        assert len(standings) == 4
        assert len({standing.decision for standing in standings}) == 1
        assert [standing.won for standing in standings].count(True) == 1

    def test_of_rivals_exactly_one_decides(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipts = [prepared(store, group, row(qid, str(n))) for n in range(20)]
        with ThreadPoolExecutor(2) as threads:
            rivals = [
                threads.submit(lambda d: [decided(store, end_of(r, d)) for r in receipts], decision)
                for decision in BOTH
            ]
        first, second = (rival.result() for rival in rivals)
        assert [a.decision for a in first] == [b.decision for b in second]
        assert all(a.won is not b.won for a, b in zip(first, second, strict=True))
        assert read(store, qid) == [str(n) for n in range(20) if first[n].decision is COMMIT]

    @pytest.mark.req("RMQ-88")
    @pytest.mark.parametrize("decision", BOTH)
    def test_the_end_of_an_unknown_half_is_refused(self, store: Store, decision: Decision) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a"))
        missing = receipt._replace(txid=receipt.txid + 1000)
        assert_refused(store, missing, decision, ReplyCode.SYSTEM_ERROR, "half not found")

    @pytest.mark.req("RMQ-88", "RMQ-54", "RMQ-56")
    @pytest.mark.parametrize("decision", BOTH)
    def test_an_end_of_another_group_is_refused(self, store: Store, decision: Decision) -> None:
        (qid,), group, other = new_queues(store), new_group(store), new_group(store, "bank")
        receipt = prepared(store, group, row(qid, "a"))
        wrong = receipt._replace(group=other)
        assert_refused(store, wrong, decision, ReplyCode.SYSTEM_ERROR, "producer group wrong")
        assert_pending(store, receipt)

    @pytest.mark.rule("R14")
    @pytest.mark.parametrize("decision", BOTH)
    def test_an_end_with_a_wrong_token_is_refused(self, store: Store, decision: Decision) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt, other = (prepared(store, group, row(qid, text)) for text in "ab")
        for token in (b"", b"guess", other.token):
            forged = end_of(receipt._replace(token=token), decision)
            (answer,) = store.halves.write((), [forged]).standings
            assert isinstance(answer, UnknownTransaction)
        assert_pending(store, receipt)

    @pytest.mark.rule("R14")
    def test_nobody_decides_a_transaction_that_does_not_exist_yet(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a"))
        ahead = [receipt._replace(txid=receipt.txid + n) for n in range(1, 50)]
        store.halves.write((), [end_of(each, ROLLBACK) for each in ahead])
        later = prepared(store, group, row(qid, "b"))
        assert decided(store, end_of(later, COMMIT)) == DecisionOutcome(later.txid, COMMIT, True)

    @pytest.mark.rule("R2")
    @pytest.mark.parametrize("decision", BOTH)
    def test_a_bare_end_of_a_keyed_transaction_is_refused(self, store: Store, decision: Decision) -> None:
        (qid,), group = new_queues(store), new_group(store)
        life = opened(store, group)
        add(store, life, 1, row(qid, "a"))
        receipt = Receipt(life.txid, group, life.token)
        assert_refused(store, receipt, decision, ReplyCode.SYSTEM_ERROR, "keyed")
        with store.ledgers.open() as ledger:
            assert ledger.standing(life.txid) is None

    @pytest.mark.req("RMQ-91")
    def test_an_ordinary_end_after_the_immunity_is_left_to_the_check(self, store: Store, later: Later) -> None:
        (qid,), group = new_queues(store), new_group(store)
        early, late = (prepared(store, group, row(qid, text), immunity=1) for text in "ab")
        plain = prepared(store, group, row(qid, "c"))
        later(2)  # an immunity below the minimum age counts as the minimum age
        assert decided(store, end_of(early, COMMIT)).won
        later(4.5)
        assert_refused(store, late, COMMIT, ReplyCode.ILLEGAL_OPERATION, "immunity")
        assert_pending(store, late)
        assert decided(store, end_of(late, COMMIT, from_check=True)).won
        assert decided(store, end_of(plain, COMMIT)).won
        assert read(store, qid) == ["a", "b", "c"]

    def test_a_refused_end_does_not_fail_its_neighbours(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        a, bad, b = (prepared(store, group, row(qid, text)) for text in ("a", "bad", "b"))
        ends = [end_of(a, COMMIT), end_of(bad._replace(token=b"guess"), COMMIT), end_of(b, COMMIT)]
        answers = store.halves.write((), ends).standings
        assert [type(answer) for answer in answers] == [DecisionOutcome, UnknownTransaction, DecisionOutcome]
        assert read(store, qid) == ["a", "b"]


def assert_refused(store: Store, receipt: Receipt, decision: Decision, code: ReplyCode, reason: str) -> None:
    """Check that an end is refused with this code and reason."""
    (answer,) = store.halves.write((), [end_of(receipt, decision)]).standings
    assert isinstance(answer, EndRefused)
    assert answer.code == code
    assert reason in answer.reason


def assert_pending(store: Store, receipt: Receipt) -> None:
    """Check that a half is undecided and undelivered."""
    (view,) = store.halves.views(receipt.txid)
    assert view.prepared
    with store.ledgers.open() as ledger:
        assert ledger.standing(receipt.txid) is None
