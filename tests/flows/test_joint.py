"""Words that are on their way to PostgreSQL while others are asked: what a lost session leaves of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.contracts.branch_contract import FIRST_OF, concluded, numbered
from tests.contracts.joint_contract import begun, stand, three, words
from tests.contracts.samples import COMMIT, new_queues, read, row
from tests.scene.stored import Stored
from txsaga.errors import OutcomeUnknown, StoreUnavailable
from txsaga.flows.branch import BranchEvent
from txsaga.flows.branches_store import PostgresJoint
from txsaga.flows.ports import BranchOutcome, Joint
from txsaga.store import pipeline as line
from txsaga.store.store import Store
from txsaga.store.wire import Call

pytestmark = pytest.mark.postgres


def opened(joint: Joint) -> line.PipelineConnection:
    """Return the line of words that are under way."""
    assert isinstance(joint, PostgresJoint)
    assert joint._line is not None
    return joint._line


def cut(stored: Stored, of: line.PipelineConnection) -> None:
    """End the server's side of a session."""
    assert of._backend is not None
    stored.rows(f"SELECT pg_terminate_backend({of._backend[0]}, 5000)")


@pytest.mark.rule("R14")
def test_words_whose_session_is_lost_are_sent_again(store: Store, stored: Stored) -> None:
    (qid,), lives = new_queues(store), three(store)
    joint = begun(store, words(store, qid, lives))
    cut(stored, opened(joint))
    assert joint.commit()
    assert stand(store, lives) == [COMMIT] * 3
    assert sorted(read(store, qid)) == ["of 1", "of 2", "of 3"]


@pytest.mark.rule("R14")
def test_words_are_sent_again_where_what_was_lost_is_known(
    store: Store, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    (qid,), lives = new_queues(store), three(store)
    first, joint = (begun(store, words(store, qid, each)) for each in (three(store), lives))
    first.abandon()  # its line is the first to be lent
    used, mine, exchange = list[line.PipelineConnection](), opened(joint), line.PipelineConnection.exchange

    def exchanged(self: line.PipelineConnection, *calls: Any, **given: Any) -> Any:
        used.append(self)
        return exchange(self, *calls, **given)

    monkeypatch.setattr(line.PipelineConnection, "exchange", exchanged)
    cut(stored, mine)
    assert joint.commit()
    assert used == [mine]


@pytest.mark.rule("R14")
def test_where_they_can_t_be_sent_again_nobody_knows(
    store: Store, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    (qid,) = new_queues(store)
    joint = begun(store, words(store, qid, three(store)))

    def away(self: line.PipelineConnection, *_: object, **__: object) -> object:
        raise StoreUnavailable("another session holds a lock")

    cut(stored, opened(joint))
    monkeypatch.setattr(line.PipelineConnection, "exchange", away)
    with pytest.raises(OutcomeUnknown):
        joint.commit()


@pytest.mark.rule("R14")
def test_words_whose_answer_is_lost_stand_once(store: Store, stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    (qid,), lives = new_queues(store), three(store)
    joint, end = begun(store, words(store, qid, lives)), line.PipelineConnection.end

    def ended(self: line.PipelineConnection) -> object:
        end(self)
        self.close()
        raise line.ConnectionLost("behind its commit")

    monkeypatch.setattr(line.PipelineConnection, "end", ended)
    assert joint.commit()
    assert stand(store, lives) == [COMMIT] * 3
    assert sorted(read(store, qid)) == ["of 1", "of 2", "of 3"]


def test_what_is_recalled_on_a_lost_session_holds_nobody_up(store: Store, stored: Stored) -> None:
    (qid,), lives = new_queues(store), three(store)
    joint = begun(store, words(store, qid, lives))
    cut(stored, opened(joint))
    joint.recall()
    joint.abandon()
    assert stand(store, lives) == [None] * 3
    assert begun(store, words(store, qid, lives)).commit()


@pytest.mark.parametrize("times", [1, 2])
def test_what_could_not_be_recalled_holds_nobody_up(store: Store, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    (qid,), lives = new_queues(store), three(store)
    joint = begun(store, words(store, qid, lives))
    due, conclude = [TimeoutError] * times, line.PipelineConnection.conclude

    def interrupted(it: line.PipelineConnection, *calls: Call) -> None:
        if due:
            raise due.pop()
        conclude(it, *calls)

    monkeypatch.setattr(line.PipelineConnection, "conclude", interrupted)
    joint.recall()
    joint.abandon()
    assert stand(store, lives) == [None] * 3
    assert begun(store, words(store, qid, lives)).commit()


def test_words_are_sent_where_the_session_had_been_lost_before(store: Store, stored: Stored) -> None:
    (qid,), lives = new_queues(store), three(store)
    first = begun(store, words(store, qid, three(store)))
    lost = opened(first)
    first.abandon()
    cut(stored, lost)
    joint = begun(store, words(store, qid, lives))
    assert joint.commit()
    assert stand(store, lives) == [COMMIT] * 3


@pytest.mark.parametrize(
    ("said", "left"),
    [(True, PostgresJoint.commit), (True, PostgresJoint.abandon), (False, PostgresJoint.abandon)],
    ids=["committed", "abandoned", "never said"],
)
def test_its_session_is_lent_again(store: Store, said: bool, left: Callable[[PostgresJoint], object]) -> None:
    (qid,) = new_queues(store)
    sessions = set()
    for _ in range(3):
        joint = store.branches.joint(words(store, qid, three(store)))
        if said:
            joint.say()
        sessions.add(opened(joint)._connection)
        assert isinstance(joint, PostgresJoint)
        left(joint)
    assert len(sessions) == 1


@pytest.mark.parametrize("many", [1, 2])
def test_words_that_are_dropped_are_not_committed_by_who_is_next(store: Store, many: int) -> None:
    (qid,), lives = new_queues(store), three(store)
    joint = begun(store, words(store, qid, lives))
    mine = opened(joint)
    del joint  # as where its owner was interrupted: the line is lent again
    assert store.branches._lines._free[-1] is mine
    others = [concluded(store, numbered(store), COMMIT, [row(qid, "of another")], FIRST_OF) for _ in range(many)]
    assert store.branches.write([*others, BranchOutcome(1, 1, 1, BranchEvent.COMMIT)]) == [*[COMMIT] * many, False]
    assert stand(store, lives) == [None] * 3
    assert read(store, qid) == ["of another"] * many


def test_what_it_needs_of_the_server_it_has_before_it_is_said(store: Store) -> None:
    (qid,) = new_queues(store)
    first, joint = (store.branches.joint(words(store, qid, three(store))) for _ in range(2))
    assert isinstance(joint, PostgresJoint)
    assert opened(joint).wire._prepared.keys() >= {call.sql for call in joint._calls}
    first.abandon()
    joint.abandon()


def test_words_that_nobody_abandons_hold_up_no_others(store: Store) -> None:
    (qid,), lives = new_queues(store), three(store)
    forgotten = begun(store, words(store, qid, three(store)))
    assert begun(store, words(store, qid, lives)).commit()
    assert stand(store, lives) == [COMMIT] * 3
    forgotten.abandon()
