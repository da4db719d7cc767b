"""What every store promises of steps: written down before they run, compensated behind a ROLLBACK, each once."""

# The name of a test is a sentence.

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.contracts.samples import COMMIT, ROLLBACK, new_group, new_queues, read, row
from tests.contracts.timing import IN_TIME, OVER, Later
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxEvent
from txsaga.core.records import LateSlot, Row, TxRecord
from txsaga.errors import DecidedOtherwise, EffectConflict, Superseded, TransactionsRejected, TxSagaError
from txsaga.flows.actions import Action
from txsaga.flows.requests import (
    Answer,
    Begin,
    ClaimedSaga,
    Close,
    Decide,
    Mark,
    RecordSteps,
    Release,
    Request,
    Start,
)
from txsaga.flows.step import Left, StepEvent, StepKind, StepState
from txsaga.store.store import Store

NONE, A_WHILE = timedelta(0), timedelta(seconds=IN_TIME)
UNDO = Action(kind=StepKind.CALL, what="refund").written()
MAIL = Action(kind=StepKind.CALL, what="mail", retries=None).written()
FINISH, FAIL, BACK = StepEvent.FINISH, StepEvent.FAIL, StepEvent.UNDO


def step(number: int, name: str = "debit", **more: object) -> Start:
    """Describe a step."""
    given: dict[str, object] = {"kind": StepKind.CALL, "input": '{"amount": 10}', "compensation": UNDO} | more
    return Start(number, name, **given)  # type: ignore[arg-type]


def written(store: Store, call: Request) -> Answer:
    """Do one call; raise what it answers."""
    (answer,) = store.work.write([call])
    if isinstance(answer, TxSagaError):
        raise answer
    return answer


def opened(store: Store, *steps: Start, run: str | None = None) -> TxRecord:
    """Begin a saga with these steps."""
    life = written(store, Begin(new_group(store), steps=steps or (step(1),), run=run))
    assert isinstance(life, TxRecord)
    return life


def settle(life: TxRecord, decision: Decision, *steps: Start, rows: tuple[Row, ...] = ()) -> Decide:
    """Speak as the owner."""
    return Decide(life, decision, who="owner 1", why="the block ended", rows=rows, driver="anna", steps=steps)


def mark(life: TxRecord | ClaimedSaga, number: int, event: StepEvent | None, **more: object) -> Mark:
    """Say what became of a step."""
    return Mark(life.txid, life.owner, number, event, **more)  # type: ignore[arg-type]


def states(store: Store, life: TxRecord) -> list[str]:
    """Return where its steps stand."""
    return [each.state.value for each in store.work.steps(life.txid)]


class StepContract:
    """Steps, as `WorkStore` promises them."""

    def test_a_saga_begins_with_its_first_step_written_down(self, store: Store) -> None:
        life = opened(store, step(1, resource="bank", kind=StepKind.SQL))
        (found,) = store.work.steps(life.txid)
        assert (found.number, found.name, found.attempt, found.state) == (1, "debit", 1, StepState.STARTED)
        assert (found.kind, found.resource, found.left, found.output) == (StepKind.SQL, "bank", Left.UNKNOWN, None)
        assert found.input == '{"amount": 10}'
        assert found.compensation is not None and Action.read(found.compensation).what == "refund"
        assert [view.txid for view in store.work.sagas()] == [life.txid]

    def test_many_begin_at_once_each_with_its_own(self, store: Store) -> None:
        group = new_group(store)
        first, second = store.work.write(
            [Begin(group, steps=(step(1),)), Begin(group, steps=(step(1), step(2)), run="r")]
        )
        assert isinstance(first, TxRecord) and isinstance(second, TxRecord)
        assert [len(store.work.steps(life.txid)) for life in (first, second)] == [1, 2]
        assert (first.run, second.run) == (None, "r")
        assert first.token != second.token

    def test_the_steps_of_many_are_found_in_one_look(self, store: Store) -> None:
        first, second = opened(store, step(1), step(2)), opened(store)
        found = store.work.steps_of([first.txid, second.txid, 999])
        assert found == {life.txid: list(store.work.steps(life.txid)) for life in (first, second)}

    def test_none_begins_where_transactions_are_rejected(self, store: Store) -> None:
        store.registry.reject_transactions(True)
        with pytest.raises(TransactionsRejected):
            opened(store)

    def test_what_became_of_a_step_is_written_with_the_next_one(self, store: Store) -> None:
        life = opened(store)
        done = mark(life, 1, FINISH, left=Left.WORK, output='{"id": 5}')
        assert store.work.write([RecordSteps(life, [step(2, compensation=None)]), done]) == [None, True]
        first, second = store.work.steps(life.txid)
        assert (first.state, first.left, first.output) == (StepState.DONE, Left.WORK, '{"id": 5}')
        assert (second.number, second.state, second.compensation) == (2, StepState.STARTED, None)

    @pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
    def test_what_became_of_steps_is_written_with_the_decision(self, store: Store, decision: Decision) -> None:
        life = opened(store, step(1), step(2, compensation=None))
        done = tuple(mark(life, number, FINISH, left=Left.WORK) for number in (1, 2))
        word = settle(life, decision)._replace(marks=done)
        for _ in range(2):  # the first answer was lost
            assert written(store, word) is decision
        assert [each.left for each in store.work.steps(life.txid)] == [Left.WORK, Left.WORK]
        assert states(store, life) == (["done"] * 2 if decision is COMMIT else ["compensating"] * 2)
        assert len(store.work.sagas()) == (decision is ROLLBACK)

    @pytest.mark.rule("R14")
    def test_what_began_before_transactions_were_rejected_comes_to_its_end(self, store: Store) -> None:
        life = opened(store)
        store.registry.reject_transactions(True)
        assert written(store, RecordSteps(life, [step(2)])) is None
        for _ in range(2):  # the first answer was lost
            assert written(store, settle(life, COMMIT)) is COMMIT

    def test_a_step_that_is_written_down_twice_is_there_once(self, store: Store) -> None:
        life = opened(store)
        for _ in range(2):
            assert written(store, RecordSteps(life, [step(2)])) is None
        assert states(store, life) == ["started", "started"]

    @pytest.mark.rule("R3")
    def test_no_step_begins_behind_the_decision(self, store: Store) -> None:
        life = opened(store)
        written(store, settle(life, ROLLBACK))
        with pytest.raises(DecidedOtherwise):
            written(store, RecordSteps(life, [step(2)]))
        assert states(store, life) == ["compensating"]

    @pytest.mark.rule("R4")
    def test_no_step_begins_in_the_hands_of_who_was_superseded(self, store: Store) -> None:
        life = opened(store)
        with store.ledgers.open() as ledger:
            ledger.lock(life.txid)
            ledger.take_over(life.txid)
        with pytest.raises(Superseded):
            written(store, RecordSteps(life, [step(2)]))
        assert written(store, mark(life, 1, FINISH)) is False

    @pytest.mark.rule("R4")
    @pytest.mark.parametrize("turned", [False, True], ids=["superseded first", "owner first"])
    def test_of_two_owners_in_one_batch_the_later_is_heard(self, store: Store, turned: bool) -> None:
        life = opened(store)
        with store.ledgers.open() as ledger:
            later = ledger.take_over(life.txid)
        for calls, answer in (
            ([RecordSteps(life, [step(2, "lost", compensation=None)]), RecordSteps(later, [step(2, "kept")])], None),
            (
                [Release(life.txid, life.owner, NONE, "lost"), Release(later.txid, later.owner, NONE, "kept")],
                True,
            ),
            ([settle(life, COMMIT), settle(later, ROLLBACK)], ROLLBACK),
        ):
            answers = store.work.write(calls[::-1] if turned else calls)
            superseded, owner = answers[::-1] if turned else answers
            assert superseded is False if isinstance(calls[0], Release) else isinstance(superseded, Superseded)
            assert owner is answer
        (_, kept) = store.work.steps(life.txid)
        assert (kept.name, kept.attempt, kept.compensation is None) == ("kept", later.owner, False)
        with store.ledgers.open() as ledger:
            assert ledger.standing(life.txid) is ROLLBACK

    @pytest.mark.rule("R6")
    def test_behind_a_rollback_every_step_is_to_be_compensated(self, store: Store) -> None:
        life = opened(store, step(1), step(2), step(3))
        store.work.write([mark(life, 1, FINISH, left=Left.WORK), mark(life, 2, FAIL, left=Left.NOTHING)])
        assert written(store, settle(life, ROLLBACK)) is ROLLBACK
        assert states(store, life) == ["compensating"] * 3
        assert [each.left for each in store.work.steps(life.txid)] == [Left.WORK, Left.NOTHING, Left.UNKNOWN]
        (view,) = store.work.sagas()
        assert (view.decision, view.steps, view.waiting, view.driver) == (ROLLBACK, 3, 3, "anna")

    def test_a_saga_is_over_once_every_step_is_undone(self, store: Store) -> None:
        life = opened(store, step(1), step(2))
        written(store, settle(life, ROLLBACK))
        assert store.work.write([mark(life, 2, BACK), Close(life.txid, 1)]) == [True, False]
        assert store.work.write([Close(life.txid, 1), mark(life, 1, BACK)]) == [True, True]
        assert store.work.sagas() == []
        assert states(store, life) == ["compensated", "compensated"]

    def test_a_commit_publishes_and_is_over(self, store: Store) -> None:
        (qid,), life = new_queues(store), opened(store)
        assert written(store, settle(life, COMMIT, rows=(row(qid, "a"),))) is COMMIT
        assert read(store, qid) == ["a"]
        assert store.work.sagas() == []

    def test_steps_behind_the_decision_come_with_it(self, store: Store) -> None:
        life = opened(store)
        assert written(store, settle(life, COMMIT, step(2, "mail", compensation=None, action=MAIL))) is COMMIT
        found = store.work.steps(life.txid)
        assert [(each.name, each.forward, each.waits) for each in found] == [
            ("debit", False, True),
            ("mail", True, True),
        ]
        assert written(store, Close(life.txid, 1)) is False
        assert store.work.write([mark(life, 2, FINISH), Close(life.txid, 1)]) == [True, True]

    def test_with_a_rollback_no_step_behind_it_comes(self, store: Store) -> None:
        life = opened(store)
        written(store, settle(life, ROLLBACK, step(2, "mail", compensation=None, action=MAIL)))
        assert len(store.work.steps(life.txid)) == 1

    def test_one_that_was_written_down_before_is_no_step_to_be_undone(self, store: Store) -> None:
        life = opened(store)
        written(store, RecordSteps(life, [step(2, "mail", compensation=None, action=MAIL)]))
        written(store, settle(life, ROLLBACK))
        assert states(store, life) == ["compensating", "started"]
        assert store.work.write([mark(life, 1, BACK), Close(life.txid, 1)]) == [True, True]

    def test_the_first_decision_stands_and_its_owner_sees_to_the_steps(self, store: Store) -> None:
        life = opened(store)
        with store.ledgers.open() as ledger:
            ledger.lock(life.txid)
            ledger.move(life.txid, TxEvent.ROLL_BACK)
            ledger.write_op(life.txid, ROLLBACK, from_check=True)
        assert states(store, life) == ["started"]
        assert written(store, settle(life, COMMIT)) is ROLLBACK
        assert states(store, life) == ["compensating"]

    def test_what_is_bound_to_a_saga_is_decided_with_it(self, store: Store) -> None:
        (qid,), life = new_queues(store), opened(store)
        with store.ledgers.open() as ledger:
            ledger.lock(life.txid)
            ledger.reserve(LateSlot(txid=life.txid, slot=1, qid=qid))
        with pytest.raises(EffectConflict):
            written(store, settle(life, COMMIT))
        assert states(store, life) == ["started"]

    def test_no_step_moves_but_by_its_lifecycle(self, store: Store) -> None:
        life = opened(store)
        assert written(store, mark(life, 1, BACK)) is False
        assert written(store, mark(life, 1, FINISH)) is True
        assert written(store, mark(life, 1, FAIL)) is False
        assert states(store, life) == ["done"]

    def test_a_try_that_failed_is_counted_and_says_why(self, store: Store) -> None:
        life = opened(store)
        written(store, settle(life, ROLLBACK))
        assert written(store, mark(life, 1, None, tries=1, error="away")) is True
        (found,) = store.work.steps(life.txid)
        assert (found.state, found.tries, found.error) == (StepState.COMPENSATING, 1, "away")

    def test_a_living_saga_is_not_taken_over(self, store: Store) -> None:
        opened(store)
        assert store.work.claim("bert", limit=9) == []
        written(store, settle(opened(store), ROLLBACK))
        assert store.work.claim("bert", limit=9) == []

    def test_a_silent_one_is_taken_over_once(self, store: Store) -> None:
        life = opened(store)
        store.work.hold([(life.txid, life.owner)], NONE)
        (claimed,) = store.work.claim("bert", limit=9)
        assert (claimed.txid, claimed.owner, claimed.decision) == (life.txid, 2, None)
        assert store.work.claim("carl", limit=9) == []
        with pytest.raises(Superseded):
            written(store, RecordSteps(life, [step(2)]))

    @pytest.mark.rule("R5")
    def test_one_that_belongs_to_a_run_is_left_to_its_run(self, store: Store) -> None:
        life = opened(store, run="airflow:1")
        store.work.hold([(life.txid, life.owner)], NONE)
        assert store.work.claim("bert", limit=9) == []

    def test_what_is_held_by_a_heartbeat_is_not_silent(self, store: Store) -> None:
        life = opened(store)
        for lease in (NONE, timedelta(minutes=1)):
            store.work.hold([(life.txid, life.owner)], lease)
        assert store.work.claim("bert", limit=9) == []
        store.work.hold([(life.txid, life.owner + 1)], NONE)  # who is not its owner
        assert store.work.claim("bert", limit=9) == []

    def test_a_reservation_that_expired_lets_its_saga_be_taken(self, store: Store, later: Later) -> None:
        life = opened(store, step(1, expires=A_WHILE), run="airflow:1")
        assert store.work.claim("bert", limit=9) == []
        later(OVER)
        assert [each.txid for each in store.work.claim("bert", limit=9)] == [life.txid]

    def test_a_driver_that_is_gone_is_followed_by_another(self, store: Store) -> None:
        life = opened(store)
        written(store, settle(life, ROLLBACK))
        assert written(store, Release(life.txid, 1, NONE, "away")) is True
        assert store.work.saga_figures().waiting == 1
        (claimed,) = store.work.claim("bert", limit=9, lease=NONE)
        assert (claimed.owner, claimed.decision) == (2, ROLLBACK)
        assert written(store, mark(life, 1, BACK)) is False  # the driver before
        (again,) = store.work.claim("carl", limit=9)
        assert store.work.write([mark(claimed, 1, BACK), mark(again, 1, BACK)]) == [False, True]

    def test_a_living_driver_holds_what_is_its_own(self, store: Store) -> None:
        life = opened(store)
        written(store, settle(life, ROLLBACK))
        store.work.hold([(life.txid, 2)], NONE)
        assert store.work.claim("carl", limit=9) == []
        store.work.hold([(life.txid, 1)], NONE)
        assert len(store.work.claim("carl", limit=9)) == 1

    def test_one_that_check_back_rolled_back_is_taken_with_its_steps(self, store: Store) -> None:
        life = opened(store)
        written(store, Release(life.txid, 1, NONE, ""))
        with store.ledgers.open() as ledger:
            ledger.lock(life.txid)
            ledger.move(life.txid, TxEvent.ROLL_BACK)
            ledger.write_op(life.txid, ROLLBACK, from_check=True)
        assert [each.decision for each in store.work.claim("bert", limit=9)] == [ROLLBACK]
        assert states(store, life) == ["compensating"]

    def test_one_that_stalls_waits_for_a_person(self, store: Store) -> None:
        life = opened(store)
        written(store, settle(life, ROLLBACK))
        gave_up = mark(life, 1, StepEvent.GIVE_UP, error="no money")
        store.work.write([gave_up, Release(life.txid, 1, NONE, "step 1 failed", stalled=True)])
        assert store.work.claim("bert", limit=9) == []
        assert store.work.saga_figures().stalled == 1
        with store.ledgers.open() as ledger:
            assert ledger.move_step(life.txid, 1, StepEvent.RESUME, "there is money now")
        (found,) = store.work.steps(life.txid)
        assert (found.state, found.tries) == (StepState.COMPENSATING, 0)
        assert len(store.work.claim("bert", limit=9)) == 1

    def test_a_person_skips_a_step(self, store: Store) -> None:
        life = opened(store)
        written(store, settle(life, ROLLBACK))
        with store.ledgers.open() as ledger:
            assert not ledger.move_step(life.txid, 1, StepEvent.RESUME, "")
            assert ledger.has_open_saga(life.txid)
            assert ledger.move_step(life.txid, 1, StepEvent.SKIP, "paid by hand")
        assert states(store, life) == ["skipped"]
        (claimed,) = store.work.claim("bert", limit=9)
        assert written(store, Close(life.txid, claimed.owner)) is True
        with store.ledgers.open() as ledger:
            assert not ledger.has_open_saga(life.txid)
