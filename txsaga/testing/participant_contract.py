"""
The contract of a participant: it keeps what it voted for, and does what is decided, in any process, repeatedly.

Give pytest these fixtures, each new for a test, and subclass the suite::

    @pytest.fixture
    def participant() -> Participant: ...   # the resource, empty

    @pytest.fixture
    def shelf() -> Shelf: ...               # how to write an item there, and to see what is committed

    @pytest.fixture
    def another() -> Participant: ...       # the same resource, opened as another process would open it

    @pytest.fixture
    def next_door() -> tuple[Participant, Shelf]: ...  # a second resource of the kind, on the same server if it has one

    class TestMine(ParticipantContract): ...
"""

# The name of a test is a sentence.
# ruff: noqa: D102

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Protocol, TypeVar
from uuid import uuid4

import pytest

from txsaga.core.decision import Decision
from txsaga.core.identity import StoreId
from txsaga.errors import CommunicationFailed, ProtocolError, RetryLater, VotedNo
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.resources.participant import Ages, EnlistedBranch, Participant


class Shelf(Protocol):
    """A place for items in the resource of a participant."""

    def put(self, handle: object, item: int) -> None:
        """Write an item through the handle of a branch."""

    def items(self) -> set[int]:
        """Return the committed items, as other sessions see them; it must not wait for a branch."""

    def spoil(self, handle: object) -> None:
        """Make the resource roll a branch back by itself, and ignore the resulting error."""

    def cut(self, handle: object) -> None:
        """Break the session of a handle, as a lost connection does; do nothing if the kind has no sessions."""

    def overrule(self, branch: BranchId, decision: Decision) -> None:
        """Decide a prepared branch in the resource itself, as its administrator would."""

    def kept(self, branch: BranchId) -> bool:
        """Return whether the resource still keeps anything of a finished branch."""

    def foreign(self) -> AbstractContextManager[None]:
        """Hold a foreign prepared transaction; at the end it must still exist, and is removed."""


COMMIT, ROLLBACK = Decision.COMMIT, Decision.ROLLBACK
NextDoor = tuple[Participant, Shelf]
Answer = TypeVar("Answer")
_PATIENCE, _PAUSE = 20.0, 0.01


def new_branch(number: int = 1, attempt: int = 1, *, beside: BranchId | None = None) -> BranchId:
    """Return a branch of a new transaction, or of the transaction of `beside`."""
    return BranchId(beside.transaction if beside else StoreId(uuid4(), 1).transaction(7), number, attempt)


def begun(participant: Participant, shelf: Shelf, branch: BranchId, item: int = 1) -> EnlistedBranch:
    """Enlist a branch and write an item in it."""
    enlisted = participant.enlist(branch)
    shelf.put(enlisted.handle, item)
    return enlisted


def voted(participant: Participant, shelf: Shelf, branch: BranchId, item: int = 1) -> EnlistedBranch:
    """Enlist a branch, write an item and get a yes vote."""
    enlisted = begun(participant, shelf, branch, item)
    assert enlisted.prepare()() is Vote.PREPARED
    return enlisted


def undone(enlisted: EnlistedBranch, participant: Participant, shelf: Shelf, branch: BranchId) -> None:
    """Roll a branch back, and find nothing of it."""
    assert enlisted.finish(ROLLBACK)() is Finish.DONE
    enlisted.leave()
    assert shelf.items() == set()
    assert not participant.prepared(branch.store)


def patiently(call: Callable[[], Answer]) -> Answer:
    """Retry while the resource raises `RetryLater`: a server takes a moment to notice that a session left."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return call()
        except RetryLater:
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE)


class ParticipantContract:
    """The contract of the port, as tests."""

    keeps = True
    """Whether it keeps something of a committed branch until it is swept."""

    @pytest.mark.req("IBM-48")
    def test_it_declares_two_phases_and_its_own_server_bears_it_out(self, participant: Participant) -> None:
        participant.probe()
        assert participant.capabilities.two_phase

    @pytest.mark.req("WM-15")
    def test_what_voted_yes_is_seen_by_nobody_until_it_is_committed(
        self, participant: Participant, shelf: Shelf
    ) -> None:
        enlisted = voted(participant, shelf, new_branch())
        assert shelf.items() == set()
        assert enlisted.finish(COMMIT)() is Finish.DONE
        enlisted.leave()
        assert shelf.items() == {1}

    def test_a_rollback_after_the_vote_leaves_nothing(self, participant: Participant, shelf: Shelf) -> None:
        branch = new_branch()
        enlisted = voted(participant, shelf, branch)
        undone(enlisted, participant, shelf, branch)

    def test_a_rollback_before_the_vote_leaves_nothing(self, participant: Participant, shelf: Shelf) -> None:
        enlisted = begun(participant, shelf, new_branch())
        assert enlisted.finish(ROLLBACK)() is Finish.DONE
        enlisted.leave()
        assert shelf.items() == set()

    def test_a_rollback_need_not_wait_for_the_vote(self, participant: Participant, shelf: Shelf) -> None:
        branch = new_branch()
        enlisted = begun(participant, shelf, branch)
        enlisted.prepare()
        undone(enlisted, participant, shelf, branch)

    def test_what_leaves_without_a_vote_is_rolled_back(self, participant: Participant, shelf: Shelf) -> None:
        branch = new_branch()
        begun(participant, shelf, branch).leave()
        assert shelf.items() == set()
        assert patiently(lambda: participant.finish(branch, ROLLBACK)) is Finish.DONE

    def test_what_did_not_vote_yes_is_never_committed(self, participant: Participant, shelf: Shelf) -> None:
        enlisted = begun(participant, shelf, new_branch())
        with pytest.raises(ProtocolError, match="committed"):
            enlisted.finish(COMMIT)
        enlisted.leave()
        assert shelf.items() == set()

    @pytest.mark.parametrize(("decision", "items"), [(COMMIT, {1}), (ROLLBACK, set())])
    def test_a_decision_may_come_again_and_again(
        self, participant: Participant, shelf: Shelf, decision: Decision, items: set[int]
    ) -> None:
        branch = new_branch()
        enlisted = voted(participant, shelf, branch)
        enlisted.finish(decision)()
        enlisted.leave()
        assert participant.finish(branch, decision) is Finish.DONE
        assert participant.finish(branch, decision) is Finish.DONE
        assert shelf.items() == items

    @pytest.mark.parametrize(("decision", "items"), [(COMMIT, {1}), (ROLLBACK, set())])
    def test_another_process_finishes_what_was_left(
        self, participant: Participant, another: Participant, shelf: Shelf, decision: Decision, items: set[int]
    ) -> None:
        branch = new_branch()
        voted(participant, shelf, branch).leave()
        assert list(another.prepared(branch.store)) == [branch]
        assert patiently(lambda: another.finish(branch, decision)) is Finish.DONE
        assert shelf.items() == items
        assert not another.prepared(branch.store)

    def test_a_yes_outlives_the_session_that_said_it(
        self, participant: Participant, another: Participant, shelf: Shelf
    ) -> None:
        branch = new_branch()
        enlisted = voted(participant, shelf, branch)
        shelf.cut(enlisted.handle)
        enlisted.leave()
        assert patiently(lambda: another.finish(branch, COMMIT)) is Finish.DONE
        assert shelf.items() == {1}

    @pytest.mark.req("IBM-50", "WM-44")
    def test_a_session_that_is_lost_before_the_vote_is_a_no(self, participant: Participant, shelf: Shelf) -> None:
        branch = new_branch()
        enlisted = begun(participant, shelf, branch)
        shelf.cut(enlisted.handle)
        if participant.capabilities.sessions:
            with pytest.raises(CommunicationFailed):
                enlisted.prepare()()
        else:  # the work is kept outside of this process: there is nothing to lose
            assert enlisted.prepare()() is Vote.PREPARED
        undone(enlisted, participant, shelf, branch)

    @pytest.mark.req("WM-15", "WM-44", "IBM-57")
    def test_work_that_the_resource_rolled_back_is_no_yes(self, participant: Participant, shelf: Shelf) -> None:
        branch = new_branch()
        enlisted = begun(participant, shelf, branch)
        shelf.spoil(enlisted.handle)
        with pytest.raises(VotedNo):
            enlisted.prepare()()
        undone(enlisted, participant, shelf, branch)

    def test_after_a_no_the_next_branch_is_as_good_as_any(self, participant: Participant, shelf: Shelf) -> None:
        enlisted = begun(participant, shelf, new_branch())
        shelf.spoil(enlisted.handle)
        with pytest.raises(VotedNo):
            enlisted.prepare()()
        enlisted.leave()
        following = voted(participant, shelf, new_branch(), item=2)
        following.finish(COMMIT)()
        following.leave()
        assert shelf.items() == {2}

    @pytest.mark.req("WM-45")
    @pytest.mark.rule("R9")
    def test_who_rolled_back_what_is_committed_is_found_out(
        self, participant: Participant, another: Participant, shelf: Shelf
    ) -> None:
        branch = new_branch()
        voted(participant, shelf, branch).leave()
        patiently(lambda: shelf.overrule(branch, ROLLBACK))
        assert another.finish(branch, COMMIT) is Finish.ROLLED_BACK
        assert shelf.items() == set()

    @pytest.mark.req("WM-45")
    @pytest.mark.rule("R9")
    def test_who_committed_what_is_rolled_back_is_found_out(
        self, participant: Participant, another: Participant, shelf: Shelf
    ) -> None:
        branch = new_branch()
        voted(participant, shelf, branch).leave()
        patiently(lambda: shelf.overrule(branch, COMMIT))
        assert another.finish(branch, ROLLBACK) is Finish.COMMITTED
        assert shelf.items() == {1}

    @pytest.mark.req("WM-46")
    def test_a_branch_that_wrote_nothing_leaves_early_where_that_is_known(
        self, participant: Participant, shelf: Shelf
    ) -> None:
        branch, tells = new_branch(), participant.capabilities.tells_reads
        enlisted = participant.enlist(branch)
        assert enlisted.prepare()() is (Vote.READ_ONLY if tells else Vote.PREPARED)
        assert list(participant.prepared(branch.store)) == ([] if tells else [branch])
        assert enlisted.finish(ROLLBACK)() is Finish.DONE
        enlisted.leave()
        assert not participant.prepared(branch.store)

    def test_branches_of_one_transaction_next_door_are_not_mixed_up(
        self, participant: Participant, shelf: Shelf, next_door: NextDoor
    ) -> None:
        here = new_branch(1)
        there = new_branch(2, beside=here)
        neighbour, far_shelf = next_door
        voted(participant, shelf, here).leave()
        voted(neighbour, far_shelf, there).leave()
        assert list(participant.prepared(here.store)) == [here]
        assert list(neighbour.prepared(here.store)) == [there]
        assert patiently(lambda: participant.finish(here, COMMIT)) is Finish.DONE
        assert (shelf.items(), far_shelf.items()) == ({1}, set())
        assert patiently(lambda: neighbour.finish(there, ROLLBACK)) is Finish.DONE
        assert (shelf.items(), far_shelf.items()) == ({1}, set())

    @pytest.mark.rule("R9")
    def test_attempts_of_one_branch_are_finished_each_by_itself(self, participant: Participant, shelf: Shelf) -> None:
        first = new_branch()
        second = new_branch(attempt=2, beside=first)
        voted(participant, shelf, first, item=1).leave()
        voted(participant, shelf, second, item=2).leave()
        assert patiently(lambda: participant.finish(second, COMMIT)) is Finish.DONE
        assert list(participant.prepared(first.store)) == [first]
        assert patiently(lambda: participant.finish(first, ROLLBACK)) is Finish.DONE
        assert shelf.items() == {2}

    def test_what_others_prepared_is_neither_listed_nor_touched(self, participant: Participant, shelf: Shelf) -> None:
        branch, of_another_store = new_branch(), new_branch()
        with shelf.foreign():
            voted(participant, shelf, branch, item=1).leave()
            voted(participant, shelf, of_another_store, item=2).leave()
            assert list(participant.prepared(branch.store)) == [branch]
            assert patiently(lambda: participant.finish(branch, COMMIT)) is Finish.DONE
            assert list(participant.prepared(of_another_store.store)) == [of_another_store]
            assert patiently(lambda: participant.finish(of_another_store, ROLLBACK)) is Finish.DONE
        assert shelf.items() == {1}

    def test_one_thread_has_two_votes_under_way(
        self, participant: Participant, shelf: Shelf, next_door: NextDoor
    ) -> None:
        here = new_branch(1)
        neighbour, far_shelf = next_door
        mine = begun(participant, shelf, here)
        theirs = begun(neighbour, far_shelf, new_branch(2, beside=here))
        votes = [mine.prepare(), theirs.prepare()]
        assert [wait() for wait in votes] == [Vote.PREPARED, Vote.PREPARED]
        ends = [mine.finish(COMMIT), theirs.finish(COMMIT)]
        assert [wait() for wait in ends] == [Finish.DONE, Finish.DONE]
        mine.leave()
        theirs.leave()
        assert (shelf.items(), far_shelf.items()) == ({1}, {1})

    def test_what_is_kept_of_a_branch_goes_when_it_is_forgotten(self, participant: Participant, shelf: Shelf) -> None:
        branch, standing = new_branch(), new_branch()
        for each, item in ((branch, 1), (standing, 2)):
            enlisted = voted(participant, shelf, each, item)
            enlisted.finish(COMMIT)()
            enlisted.leave()
        kept = shelf.kept(standing)
        participant.forget(branch)
        assert not shelf.kept(branch)
        assert shelf.kept(standing) == kept
        assert shelf.items() == {1, 2}
        participant.forget(branch)

    @pytest.mark.rule("R10")
    def test_what_is_old_goes_where_nobody_asks_about_it_any_more(self, participant: Participant, shelf: Shelf) -> None:
        over, asked = (self._committed(participant, shelf, item) for item in (1, 2))
        long, at_once, heard = timedelta(hours=1), timedelta(0), list[BranchId]()

        def hear(found: Sequence[BranchId]) -> Collection[BranchId]:
            heard.extend(found)
            return [branch for branch in found if branch == over]

        time.sleep(_PAUSE)  # so that both are in the past
        before = shelf.kept(over)
        for branch in (over, asked):
            assert participant.sweep(branch.store, Ages(long, long), hear) == 0
        assert (heard, shelf.kept(over)) == ([], before)
        swept = [participant.sweep(branch.store, Ages(at_once, long), hear) for branch in (over, asked)]
        assert (swept, heard) == (([1, 0], [over, asked]) if self.keeps else ([0, 0], []))
        assert not (self.keeps and shelf.kept(over))
        assert shelf.kept(asked) == before
        assert shelf.items() == {1, 2}

    def _committed(self, participant: Participant, shelf: Shelf, item: int) -> BranchId:
        branch = new_branch()
        enlisted = voted(participant, shelf, branch, item)
        enlisted.finish(COMMIT)()
        enlisted.leave()
        return branch
