"""What every store promises of its backlog: what is on the list of doubts, who answers for it, who led a round."""

# The name of a test is a sentence.

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.contracts.samples import (
    LONG,
    ROLLBACK,
    decided,
    end_of,
    new_group,
    new_queues,
    opened,
    park,
    prepared,
    row,
    settle,
    swept,
)
from tests.contracts.timing import Later
from txsaga.checkback.questions import Ask, Lead, PutOff, QuestionAnswer
from txsaga.core.decision import LocalState
from txsaga.core.lifecycle import TxEvent
from txsaga.store.store import Store

MOMENT = timedelta(seconds=3)


class BacklogContract:
    """Figures of check-back, as the port `Overview` promises them."""

    @pytest.mark.req("RMQ-70")
    def test_a_doubt_waits_is_asked_about_and_is_parked(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        waiting, asked, parked = (prepared(store, group, row(qid, text)) for text in "abc")
        swept(store, group)
        lead = _asked(store, group, asked.txid)
        park(store, parked.txid, "out of checks")
        found = store.overview.doubts(limit=10)
        assert [(each.txid, each.progress, each.member, each.checks.asked) for each in found] == [
            (waiting.txid, "waiting", None, 0),
            (asked.txid, "asked", "anna", 1),
            (parked.txid, "parked", None, 0),
        ]
        assert [each.id for each in found] == [store.registry.identity.transaction(each.txid) for each in found]
        assert all(each.group == "shop" and timedelta(0) <= each.age < LONG for each in found)
        assert found[2].checks.parked == "out of checks"
        store.leases.release(lead)

    def test_parked_ones_one_group_or_the_first_are_listed_alone(self, store: Store) -> None:
        (qid,), shop, bank = new_queues(store), new_group(store), new_group(store, "bank")
        one, two, other = (prepared(store, group, row(qid, "x")) for group in (shop, shop, bank))
        swept(store, shop)
        for receipt in (two, other):
            park(store, receipt.txid, "out of checks")

        def listed(**wanted: object) -> list[int]:
            return [each.txid for each in store.overview.doubts(**{"limit": 10, **wanted})]  # type: ignore[arg-type]

        assert listed() == [one.txid, two.txid, other.txid]
        assert listed(parked=True) == [two.txid, other.txid]
        assert listed(group="shop") == [one.txid, two.txid]
        assert listed(group="shop", parked=True) == [two.txid]
        assert listed(group="nobody") == []
        assert listed(limit=2) == [one.txid, two.txid]

    def test_what_is_decided_is_no_doubt_and_a_keyed_one_has_its_key(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt, life = prepared(store, group, row(qid, "a")), opened(store, group, "order-7")
        with store.ledgers.open() as ledger:
            ledger.move(life.txid, TxEvent.SEAL)
        swept(store, group)
        assert [(each.txid, each.key) for each in store.overview.doubts(limit=10)] == [
            (receipt.txid, None),
            (life.txid, "order-7"),
        ]
        decided(store, end_of(receipt, ROLLBACK))
        settle(store, life, ROLLBACK)
        assert list(store.overview.doubts(limit=10)) == []

    def test_a_doubt_shows_what_came_of_its_checks(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a"))
        swept(store, group)
        store.doubts.put_off([PutOff(receipt.txid, timedelta(0), "it is away", False)])
        _asked(store, group, receipt.txid)
        store.questions.take("anna", 10)
        store.questions.answered("anna", [QuestionAnswer(receipt.txid, LocalState.UNKNOWN, "who knows")])
        (found,) = store.overview.doubts(limit=10)
        remarks = [(each.who, each.answer, each.why) for each in found.checks.remarks]
        assert remarks == [("check-back", "NO_ANSWER", "it is away"), ("anna", "UNKNOWN", "who knows")]
        assert list(store.overview.remarks(receipt.txid)) == list(found.checks.remarks)
        assert (found.member, found.checks.asked) == (None, 1)

    @pytest.mark.req("RMQ-70", "RMQ-85")
    def test_each_group_has_its_backlog_and_those_who_answer_for_it(self, store: Store) -> None:
        (qid,), shop = new_queues(store), new_group(store)
        new_group(store, "bank")
        silent = store.registry.group("silent", transactional=False).id
        parked, asked, _ = (prepared(store, shop, row(qid, text)) for text in "abc")
        life = opened(store, shop)
        swept(store, shop)
        park(store, parked.txid, "out of checks")
        _asked(store, shop, asked.txid)
        store.leases.keep([f"checker:{shop}"], "berta", LONG)
        bank, mine = store.overview.backlogs()
        assert (bank.group, bank.undecided, bank.oldest, bank.members, dict(bank.answers)) == ("bank", 0, None, 0, {})
        assert (mine.group, mine.undecided, mine.parked, mine.asked, mine.members) == ("shop", 4, 1, 1, 2)
        assert mine.oldest is not None and timedelta(0) <= mine.oldest < LONG
        settle(store, life, ROLLBACK)
        assert store.overview.backlogs()[1].undecided == 3
        prepared(store, silent, row(qid, "d"))
        swept(store, silent)
        assert [(each.group, each.undecided) for each in store.overview.backlogs()][2:] == [("silent", 1)]

    @pytest.mark.req("RMQ-70")
    def test_answers_are_counted_by_what_was_said(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        one, two = (prepared(store, group, row(qid, text)) for text in "ab")
        swept(store, group)
        _asked(store, group, one.txid, two.txid)
        assert len(store.questions.take("anna", 10)) == 2
        decided(store, end_of(one, ROLLBACK, from_check=True))
        said = [(one.txid, LocalState.ROLLBACK), (two.txid, LocalState.UNKNOWN)]
        store.questions.answered("anna", [QuestionAnswer(txid, state, "why") for txid, state in said])
        store.doubts.put_off([PutOff(two.txid, timedelta(0), "nobody", False)])
        (mine,) = store.overview.backlogs()
        assert dict(mine.answers) == {"ROLLBACK": 1, "UNKNOWN": 1, "NO_ANSWER": 1}

    @pytest.mark.req("RMQ-30")
    def test_the_last_round_has_its_leader(self, store: Store, later: Later) -> None:
        assert store.overview.last_round("check-back") is None
        lead = store.leases.acquire("round", "check-back", "anna", LONG)
        assert lead is not None
        found = store.overview.last_round("check-back")
        assert found is not None and (found.leader, found.ago) == ("anna", timedelta(0))
        store.leases.release(lead)
        later(0.1)
        found = store.overview.last_round("check-back")
        assert found is not None and timedelta(0) < found.ago < LONG
        assert store.overview.last_round("another") is None


def _asked(store: Store, group: int, *txids: int) -> Lead:
    """Put questions about transactions to a member, and return the lead of that round."""
    store.leases.keep([f"checker:{group}"], "anna", LONG)
    lead = store.leases.acquire("round", "check-back", "leader", LONG)
    assert lead is not None
    asked = store.questions.ask([Ask(txid, group, "anna", MOMENT, MOMENT) for txid in txids], lead)
    assert sorted(asked) == sorted(txids)
    return lead
