"""What every store promises of messages for later: they come when they are due, in that order, or are recalled."""

# The name of a test is a sentence.

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.contracts.samples import (
    COMMIT,
    LONG,
    ROLLBACK,
    answered,
    decided,
    end_of,
    new_group,
    new_queues,
    prepared,
    published,
    read,
    row,
    swept,
)
from tests.contracts.timing import IN_TIME, OVER, Later
from txsaga.core.decision import Decision
from txsaga.core.records import DecisionOutcome, Due, End, Half, Receipt
from txsaga.errors import UnknownTransaction
from txsaga.store.store import Store


def scheduled(store: Store, group: int, qid: int, text: str, due: Due | float) -> Receipt:
    """Store one message for later; a number is its delay in seconds."""
    when = due if isinstance(due, Due) else Due(timedelta(seconds=due))
    return answered(store.halves.write([Half(group, [row(qid, text)], due=when)], ()).receipts[0])


def recalled(store: Store, receipt: Receipt) -> DecisionOutcome:
    """Recall a message."""
    return decided(store, End(receipt.txid, receipt.group, receipt.token, ROLLBACK, recalls=True))


def commit_all_due(store: Store) -> int:
    """Commit what is due, round by round; count it."""
    count = 0
    while done := store.schedule.commit_due(1000):
        count += done
    return count


class ScheduleContract:
    """Messages for later, as the ports `HalfStore` and `Schedule` promise it."""

    def test_a_message_is_invisible_until_it_is_due(self, store: Store, later: Later) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = scheduled(store, group, qid, "a", IN_TIME)
        assert (commit_all_due(store), read(store, qid)) == (0, [])
        later(OVER)
        assert read(store, qid) == []
        assert (commit_all_due(store), read(store, qid)) == (1, ["a"])
        assert (commit_all_due(store), read(store, qid)) == (0, ["a"])
        view = store.overview.transaction(receipt.txid)
        assert view is not None
        assert (view.state, view.due, view.from_check) == ("committed", None, False)

    def test_a_moment_is_taken_as_it_is_and_one_in_the_past_is_at_once(self, store: Store, later: Later) -> None:
        (qid,), group = new_queues(store), new_group(store)
        (now,) = (view.born for view in store.halves.views(published(store, group, row(qid, "now")).txid))
        scheduled(store, group, qid, "soon", Due(at=now + timedelta(seconds=IN_TIME)))
        scheduled(store, group, qid, "long ago", Due(at=now - LONG))
        assert (commit_all_due(store), read(store, qid)) == (1, ["now", "long ago"])
        later(OVER)
        assert (commit_all_due(store), read(store, qid)) == (1, ["now", "long ago", "soon"])

    def test_messages_come_in_the_order_in_which_they_are_due(self, store: Store, later: Later) -> None:
        qids, group = new_queues(store, count=2), new_group(store)
        delays = {"e": 0.5, "b": 0.2, "d": 0.4, "a": 0.1, "c": 0.3}
        halves = [
            Half(group, [row(qid, text)], due=Due(timedelta(seconds=delay)))
            for text, delay in delays.items()
            for qid in qids
        ]
        assert all(
            isinstance(answer, Receipt) for answer in store.halves.write(halves, ()).receipts
        )  # together: at one moment
        later(0.6)
        assert commit_all_due(store) == 10
        assert [read(store, qid) for qid in qids] == [["a", "b", "c", "d", "e"]] * 2

    def test_messages_that_are_due_together_come_in_the_order_of_sending(self, store: Store, later: Later) -> None:
        (qid,), group = new_queues(store), new_group(store)
        halves = [Half(group, [row(qid, str(n))], due=Due(timedelta(seconds=0.01))) for n in range(20)]
        for batch in (halves[:12], halves[12:]):
            assert all(isinstance(answer, Receipt) for answer in store.halves.write(batch, ()).receipts)
        later(0.1)
        assert store.schedule.commit_due(1000) == 20
        assert read(store, qid) == [str(n) for n in range(20)]

    def test_a_round_is_bounded(self, store: Store, later: Later) -> None:
        (qid,), group = new_queues(store), new_group(store)
        for n in range(5):
            scheduled(store, group, qid, str(n), 0.001)
        later(0.1)
        assert [store.schedule.commit_due(2) for _ in range(4)] == [2, 2, 1, 0]
        assert read(store, qid) == list("01234")

    def test_a_message_that_is_recalled_before_it_is_due_never_comes(self, store: Store, later: Later) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipts = [scheduled(store, group, qid, text, 0.3) for text in "abc"]
        assert recalled(store, receipts[1]) == DecisionOutcome(receipts[1].txid, ROLLBACK, True)
        view = store.overview.transaction(receipts[1].txid)
        assert view is not None
        assert (view.state, view.due) == ("rolled_back", None)
        assert store.overview.undecided().scheduled == 2
        later(0.4)
        assert (commit_all_due(store), read(store, qid)) == (2, ["a", "c"])
        assert recalled(store, receipts[1]) == DecisionOutcome(receipts[1].txid, ROLLBACK, False)

    def test_a_recall_behind_the_delivery_learns_that_it_stands(self, store: Store, later: Later) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = scheduled(store, group, qid, "a", 0.001)
        later(0.1)
        assert commit_all_due(store) == 1
        assert recalled(store, receipt) == DecisionOutcome(receipt.txid, COMMIT, False)
        assert read(store, qid) == ["a"]

    def test_a_recall_with_a_wrong_token_changes_nothing(self, store: Store, later: Later) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = scheduled(store, group, qid, "a", 0.001)
        with pytest.raises(UnknownTransaction):
            recalled(store, receipt._replace(token=b"no"))
        later(0.1)
        assert (commit_all_due(store), read(store, qid)) == (1, ["a"])

    @pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
    def test_what_is_decided_before_it_is_due_is_not_decided_again(
        self, store: Store, later: Later, decision: Decision
    ) -> None:
        (qid,), group = new_queues(store), new_group(store)
        assert decided(store, end_of(scheduled(store, group, qid, "a", 0.01), decision)).won
        expected = ["a"] if decision is COMMIT else []
        assert read(store, qid) == expected
        assert store.overview.undecided().scheduled == 0
        later(0.1)
        commit_all_due(store)
        assert read(store, qid) == expected

    @pytest.mark.rule("R13")
    def test_nobody_doubts_a_message_because_it_waits(self, store: Store, later: Later) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt, half = scheduled(store, group, qid, "a", 3600), prepared(store, group, row(qid, "b"))
        assert [doubt.txid for doubt in swept(store, group)] == [half.txid]
        undecided = store.overview.undecided()
        assert (undecided.count, undecided.scheduled) == (1, 1)
        views = {view.txid: view for view in store.overview.transactions(undecided=True, limit=10)}
        assert {txid: view.state for txid, view in views.items()} == {receipt.txid: "scheduled", half.txid: "prepared"}
        due, born = views[receipt.txid].due, views[receipt.txid].born
        assert due is not None
        assert abs(due - born - LONG) < timedelta(seconds=1)
        assert views[half.txid].due is None

    def test_a_store_that_rejects_transactions_takes_messages_for_later(self, store: Store, later: Later) -> None:
        (qid,), group = new_queues(store), new_group(store)
        store.registry.reject_transactions(True)
        scheduled(store, group, qid, "a", 0.001)
        later(0.1)
        assert (commit_all_due(store), read(store, qid)) == (1, ["a"])

    def test_every_kind_goes_in_one_batch(self, store: Store, later: Later) -> None:
        (qid,), group = new_queues(store), new_group(store)
        half, waits = prepared(store, group, row(qid, "half")), scheduled(store, group, qid, "recalled", 0.01)
        kept = scheduled(store, group, qid, "kept", 0.01)
        halves = [
            Half(group, [row(qid, "later")], due=Due(timedelta(seconds=0.01))),
            Half(group, [row(qid, "held")]),
            Half(group, [row(qid, "plain")], plain=True),
            Half(group, [row(qid, "past")], due=Due(at=store.halves.views(half.txid)[0].born)),
        ]
        recall = End(waits.txid, group, waits.token, ROLLBACK, recalls=True)
        receipts, standings = store.halves.write(halves, [recall, end_of(half, COMMIT), recall._replace()])
        assert len({answered(receipt).txid for receipt in receipts}) == 4
        assert [(answered(s).txid, answered(s).decision, answered(s).won) for s in standings] == [
            (waits.txid, ROLLBACK, True),
            (half.txid, COMMIT, True),
            (waits.txid, ROLLBACK, False),
        ]
        assert sorted(read(store, qid)) == ["half", "plain"]
        later(0.1)
        assert commit_all_due(store) == 3
        assert sorted(read(store, qid)) == ["half", "kept", "later", "past", "plain"]
        assert decided(store, end_of(kept, ROLLBACK)).decision is COMMIT
        assert decided(store, end_of(answered(receipts[1]), COMMIT)).won
