"""What goes wrong while blocks share their branches: nothing is lost, done twice, or told to another."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Timer
from typing import cast

import pytest
from sqlalchemy import text

from tests.flows.coordinated.bank import TRANSFERS, Bank
from tests.flows.coordinated.conftest import OpenBank
from tests.flows.coordinated.ending import OPEN, Work, accounts, at_once, line_of, opening, run
from txsaga.core.decision import Decision
from txsaga.errors import (
    CommunicationFailed,
    DecidedOtherwise,
    IntegrityViolated,
    OutcomeUnknown,
    RolledBack,
    StoreError,
    StoreUnavailable,
    Unfinished,
)
from txsaga.flows.branch import Finish, Vote
from txsaga.flows.branches_store import BranchStore, PostgresJoint
from txsaga.flows.coordinated import Coordinated
from txsaga.flows.ports import DecisionRequest, Fence, Joint
from txsaga.flows.work import Work as Resources
from txsaga.resources import postgres_journal
from txsaga.resources.participant import LockPatience
from txsaga.resources.postgres_journal import PostgresJournal
from txsaga.store.pipeline import PipelineConnection
from txsaga.store.wire import Rows

pytestmark = [pytest.mark.postgres, pytest.mark.mariadb]

COMMIT = Decision.COMMIT


def raised(error: Exception) -> Callable[[], None]:
    """Raise an error where a function is expected."""
    raise error


class Between:
    """The store's branches, where something happens to words that stand together."""

    def __init__(
        self, real: BranchStore, before: Callable[[Sequence[DecisionRequest]], None], said: Callable[[Joint], bool]
    ) -> None:
        self._real, self._before, self._said = real, before, said

    def joint(self, words: Sequence[DecisionRequest]) -> Joint:
        """Do what is to happen before they are sent, or when they are to stand."""
        joint, before, said = self._real.joint(words), self._before, self._said

        class Odd:
            def say(self) -> None:
                before(words)
                joint.say()

            def commit(self) -> bool:
                return said(joint)

            def recall(self) -> None:
                joint.recall()

            def abandon(self) -> None:
                joint.abandon()

        return Odd()


def test_resources_are_asked_before_the_words_are_sent(opened: OpenBank) -> None:
    bank = opened("postgresql", "postgresql")
    blocks, asked = list[Coordinated](), list[bool]()

    def work(account: int) -> Work:
        def written(tx: Coordinated) -> None:
            blocks.append(tx)
            opening(bank, account)(tx)

        return written

    def sent(words: Sequence[DecisionRequest]) -> None:
        (first,) = (tx for tx in blocks if tx.txid == words[0].life.txid)
        asked.extend(first._owner.work.part(name).asked for name in bank.engines)

    line, real = line_of(bank), bank.broker.kernel.store.branches
    line._branches = cast(BranchStore, Between(real, sent, lambda joint: joint.commit()))
    left = at_once(bank, work(11), work(12))
    assert [each.decision for each in left] == [COMMIT] * 2
    assert asked == [True] * 2


def test_an_interrupt_while_the_words_are_sent_comes_out_whatever_the_votes(opened: OpenBank) -> None:
    bank = opened("postgresql", "postgresql")
    line, real = line_of(bank), bank.broker.kernel.store.branches

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    line._branches = cast(BranchStore, Between(real, interrupted, lambda joint: joint.commit()))
    with pytest.raises(KeyboardInterrupt):
        at_once(bank, opening(bank, 11), opening(bank, 1_000))  # of which the second is there already
    line._branches = real


def test_votes_are_heard_where_the_words_can_t_be_sent_and_each_goes_by_itself(bank: Bank) -> None:
    line, real = line_of(bank), bank.broker.kernel.store.branches

    def away(_: object) -> None:
        raise StoreUnavailable("nobody answers")

    line._branches = cast(BranchStore, Between(real, away, lambda joint: joint.commit()))
    left = at_once(bank, opening(bank, 11), opening(bank, 12))
    assert [each.error for each in left] == [None] * 2
    assert (accounts(bank), bank.prepared()) == ([[11, 12]] * 2, [])


def test_words_and_resources_wait_for_each_other_no_more_than_for_a_no(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, done = line_of(bank), list[str]()
    recall, hear, undo = PostgresJoint.recall, PipelineConnection.hear, Resources.undo

    def recalled(joint: PostgresJoint) -> None:
        recall(joint)
        done.append("recalled")

    def heard(it: PipelineConnection) -> list[Rows]:
        done.append("heard")
        return hear(it)

    def undone(work: Resources) -> bool:
        done.append("undone")
        return undo(work)

    monkeypatch.setattr(PostgresJoint, "recall", recalled)
    monkeypatch.setattr(PipelineConnection, "hear", heard)
    monkeypatch.setattr(Resources, "undo", undone)
    left = at_once(bank, opening(bank, 11), opening(bank, 1_000))  # of which the second is there already
    assert [each.error is None for each in left] == [True, False]
    assert done[:3] == ["recalled", "undone", "recalled"]
    assert done[3] == "heard"
    assert not line._turns


@pytest.mark.rule("R2")
@pytest.mark.parametrize("when", ["while the words are sent", "before they are to stand"])
def test_work_that_a_thread_does_during_the_end_is_not_lost(opened: OpenBank, when: str) -> None:
    bank = opened("postgresql", "postgresql", "postgresql")
    first, second, third = bank.engines
    open_blocks: list[Coordinated] = []

    def work(account: int) -> Work:
        def written(tx: Coordinated) -> None:
            open_blocks.append(tx)
            for name in (first, second):
                tx.journal(name).execute(OPEN, {"id": account})

        return written

    run(bank, work(10))
    open_blocks.clear()
    line, real = line_of(bank), bank.broker.kernel.store.branches

    def late(_: object) -> None:
        for tx in open_blocks:
            if tx.decision is None and not tx._owner.work.part(third).used:
                with tx.on(third) as connection:
                    connection.execute(text(OPEN), {"id": 99})
                    return

    before = late if when.endswith("sent") else lambda _: None
    line._branches = cast(BranchStore, Between(real, before, lambda joint: joint.commit()))
    asked = Resources.ask_at_once

    def asked_first(self: Resources) -> Callable[[], dict[str, Vote]]:
        votes = asked(self)()
        if when.endswith("stand"):
            late(None)
        return lambda: votes

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Resources, "ask_at_once", asked_first)
        left = at_once(bank, work(11), work(12))
    assert [(each.decision, each.error) for each in left] == [(COMMIT, None)] * 2
    bank.broker.kernel.notes.flush()
    assert accounts(bank) == [[10, 11, 12], [10, 11, 12], [99]]
    assert bank.prepared() == []


def test_whoever_joins_one_that_waits_for_a_lock_is_not_held_up(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(postgres_journal.LONGEST, LockPatience.BRIEFLY, "3s")
    line_of(bank)
    with bank.engines["current"].connect() as holder, ThreadPoolExecutor(3) as threads:
        holder.execute(text(OPEN), {"id": 11})
        freed = Timer(2, holder.rollback)
        freed.start()
        waiting = threads.submit(run, bank, opening(bank, 11))
        time.sleep(0.03)
        joining = [threads.submit(run, bank, opening(bank, account)) for account in (12, 13)]
        assert max(each.result().seconds for each in joining) < 1.5
        assert (waiting.result().decision, waiting.result().error) == (COMMIT, None)
        freed.join()


@pytest.mark.rule("R14")
def test_words_that_the_store_refuses_are_refused_to_their_own_block_alone(bank: Bank) -> None:
    line_of(bank)
    bank.stored.rows(
        "create function refuse() returns trigger language plpgsql as 'begin "
        "if position(''poison''::bytea in new.body) > 0 then raise exception ''refused''; end if; return new; end'"
    )
    bank.stored.rows("create trigger refuse before insert on half for each row execute function refuse()")

    def poisoned(tx: Coordinated) -> None:
        opening(bank, 12)(tx)
        tx.send(TRANSFERS, b"poison")

    left = at_once(bank, opening(bank, 11), poisoned, opening(bank, 13))
    assert [type(each.error) for each in left] == [type(None), StoreError, type(None)]
    bank.recover()
    assert accounts(bank) == [[11, 13]] * 2


def test_what_can_t_be_taken_back_is_told_without_the_error_of_another(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    line_of(bank)
    monkeypatch.setattr(PostgresJournal, "take_back", lambda self: raised(CommunicationFailed("lost")))
    left = at_once(bank, opening(bank, 11), opening(bank, 12), opening(bank, 1))
    assert isinstance(left[2].error, IntegrityViolated | RolledBack)
    assert all(each.error is None or type(each.error) is RolledBack for each in left[:2])
    kept = [account for account, each in zip((11, 12), left[:2], strict=True) if each.error is None]
    assert accounts(bank) == [kept] * 2
    assert bank.prepared() == []


@pytest.mark.rule("R9")
@pytest.mark.parametrize("heard", [True, False], ids=["all is taken back", "nobody hears that it is"])
def test_where_the_first_is_taken_for_dead_the_others_go_by_themselves(
    bank: Bank, monkeypatch: pytest.MonkeyPatch, heard: bool
) -> None:
    line, real = line_of(bank), bank.broker.kernel.store.branches
    if not heard:
        monkeypatch.setattr(PostgresJournal, "take_back", lambda self: raised(CommunicationFailed("lost")))

    def fence(words: Sequence[DecisionRequest]) -> None:
        real.write([Fence(words[0].life.txid, "recovery", "its owner is gone")])

    line._branches = cast(BranchStore, Between(real, fence, lambda joint: joint.commit()))
    left = at_once(bank, opening(bank, 11), opening(bank, 12), opening(bank, 13))
    (first,) = [each for each in left if each.error is not None]
    assert isinstance(first.error, DecidedOtherwise if heard else RolledBack)
    kept = [account for account, each in zip((11, 12, 13), left, strict=True) if each.decision is COMMIT]
    assert (len(kept), accounts(bank), bank.prepared()) == (2, [kept] * 2, [])


@pytest.mark.rule("R14")
@pytest.mark.parametrize("stands", [True, False])
def test_where_nobody_knows_whether_they_stand_recovery_finds_out(bank: Bank, stands: bool) -> None:
    def lost(joint: Joint) -> bool:
        if stands:
            joint.commit()
        raise OutcomeUnknown("the answer was lost")

    line, real = line_of(bank), bank.broker.kernel.store.branches
    line._branches = cast(BranchStore, Between(real, lambda _: None, lost))
    left = at_once(bank, opening(bank, 11), opening(bank, 12))
    assert [type(each.error) for each in left] == [OutcomeUnknown] * 2
    bank.recover()
    assert accounts(bank) == ([[11, 12]] if stands else [[]]) * 2
    assert sorted(bank.told()) == (["1000", "11", "12"] if stands else ["1000"])
    assert bank.prepared() == []


def test_a_resource_that_does_not_hear_of_it_is_told_to_each_and_by_recovery(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    line_of(bank)
    finish = PostgresJournal.finish

    def silent(self: PostgresJournal, decision: Decision) -> Callable[[], Finish]:
        if self._place == "mortgage" and decision is COMMIT:
            raise CommunicationFailed("nobody answers")
        return finish(self, decision)

    monkeypatch.setattr(PostgresJournal, "finish", silent)
    left = at_once(bank, opening(bank, 11), opening(bank, 12))
    assert [type(each.error) for each in left] == [Unfinished] * 2
    assert [f"transaction {each.txid} " in str(each.error) for each in left] == [True, True]
    monkeypatch.undo()
    bank.recover()
    assert accounts(bank) == [[11, 12]] * 2
