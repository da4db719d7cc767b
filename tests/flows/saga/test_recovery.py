"""Whoever dies, what was written down is undone, or done, by another: each step once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace

import pytest
from sqlalchemy import Connection, text

from tests.flows.saga.agency import BOOK, CANCEL, LONG_AGO, Agency, Stop, call, call_off, done, mail
from tests.scene.elsewhere import Elsewhere
from txsaga import Decision, Undo, compensation
from txsaga.checkback.profile import CheckProfile
from txsaga.checkback.runs import RunState
from txsaga.errors import (
    CompensationFailed,
    ConfigError,
    DecidedOtherwise,
    IllegalTransition,
    InDoubt,
    NotCompensated,
    StepRefused,
    Superseded,
    UnknownStep,
)
from txsaga.flows.actions import CODE, Action
from txsaga.flows.by_hand import SagasByHand
from txsaga.flows.requests import Start
from txsaga.flows.saga import Saga
from txsaga.flows.saga_driver import SagaRecovery
from txsaga.flows.step import StepKind
from txsaga.flows.step_execution import StepActions, Turn
from txsaga.testing.checking import check_once

pytestmark = pytest.mark.postgres


def left_open(agency: Agency, *whats: str, key: str | None = None) -> Saga:
    """Leave a saga as an owner does that is killed behind some steps."""
    saga = agency.saga(key)
    Elsewhere(saga).__enter__()
    agency.book(saga, *whats)
    saga._steps.leave()
    return saga


def left_in_a_step(saga: Saga, what: str) -> Start:
    """Die between the journal and the work."""
    undo = Action(kind=StepKind.SQL, what=CANCEL, resource="bank").written()
    number = saga._steps.number()
    start = Start(number, what, StepKind.SQL, "bank", f'{{"what": "{what}"}}', undo)
    saga._steps.record(start)
    return start


@pytest.mark.rule("R6")
@pytest.mark.req("IBM-64")
def test_a_saga_whose_owner_was_killed_is_rolled_back_and_undone(agency: Agency) -> None:
    saga = left_open(agency, "a", "b", "c")
    assert SagaRecovery(agency.broker.kernel).run_once() == 0  # its owner may live
    assert agency.take_over() == 1
    assert agency.lines() == ["a", "b", "c", "undo c", "undo b", "undo a"]
    assert agency.states(saga.txid) == ["compensated"] * 3
    assert agency.open_sagas() == 0
    assert agency.take_over() == 0


def test_a_step_that_never_ran_is_not_undone_and_never_runs(agency: Agency) -> None:
    saga = left_open(agency, "a")
    left_in_a_step(saga, "b")
    assert agency.take_over() == 1
    assert agency.lines() == ["a", "undo a"]
    assert agency.states(saga.txid) == ["compensated"] * 2
    assert saga.id is not None and saga.txid is not None
    turn = Turn(saga.id, saga.txid, 1, 2, "b")
    with pytest.raises(StepRefused):  # the zombie comes with its step
        StepActions(agency.broker.kernel).do(turn, Action(kind=StepKind.SQL, what=BOOK, resource="bank"), {"what": "b"})
    assert agency.lines() == ["a", "undo a"]


def test_a_step_that_ran_without_anybody_knowing_is_undone(agency: Agency) -> None:
    saga = left_open(agency, "a")
    left_in_a_step(saga, "b")
    assert saga.id is not None and saga.txid is not None
    turn = Turn(saga.id, saga.txid, 1, 2, "b")
    StepActions(agency.broker.kernel).do(turn, Action(kind=StepKind.SQL, what=BOOK, resource="bank"), {"what": "b"})
    assert agency.take_over() == 1
    assert agency.lines() == ["a", "b", "undo b", "undo a"]


def test_a_step_that_is_still_running_is_waited_for(agency: Agency) -> None:
    saga = left_open(agency, "a")
    left_in_a_step(saga, "b")
    assert saga.id is not None and saga.txid is not None
    begun, go_on = threading.Event(), threading.Event()

    def slow(connection: object) -> None:
        begun.set()
        go_on.wait(30)

    turn = Turn(saga.id, saga.txid, 1, 2, "b")
    action = Action(kind=StepKind.CALL, what="slow", resource="bank")
    zombie = threading.Thread(target=lambda: StepActions(agency.broker.kernel).do(turn, action, {}, function=slow))
    zombie.start()
    begun.wait(30)
    assert agency.take_over() == 0
    (view,) = agency.broker.kernel.store.work.sagas()
    assert (view.decision, view.why) == (Decision.ROLLBACK, "step 'b' is still running")
    go_on.set()
    zombie.join()
    assert agency.take_over() == 1
    assert agency.lines() == ["a", "undo b", "undo a"]


def test_a_step_without_evidence_of_which_nobody_knows_is_undone(agency: Agency) -> None:
    saga = agency.saga()
    saga.__enter__()
    saga.step(call, compensate=call_off, input={"what": "a"})
    undo = Action(kind=StepKind.CALL, what="agency-call-off").written()
    saga._steps.record(Start(saga._steps.number(), "b", StepKind.CALL, None, '{"what": "b"}', undo))
    saga._steps.leave()
    assert agency.take_over() == 1
    assert done == ["a", "undo b", "undo a"]


@pytest.mark.rule("R4")
def test_an_owner_that_wakes_up_finds_itself_superseded(agency: Agency) -> None:
    saga = left_open(agency, "a")
    agency.take_over()
    with pytest.raises(Superseded):
        agency.book(saga, "b")
    with pytest.raises(Superseded):
        saga.__exit__(None, None, None)
    assert agency.lines() == ["a", "undo a"]


def test_a_driver_that_dies_is_followed_by_another(agency: Agency, monkeypatch: pytest.MonkeyPatch) -> None:
    saga = left_open(agency, "a", "b")

    class Killed(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("txsaga.flows.saga_driver.SagaDriver._mark", die)
        agency.take_over()
    assert agency.lines() == ["a", "b", "undo b"]
    assert SagaRecovery(agency.broker.kernel).run_once() == 0  # the driver before may live
    assert agency.take_over() == 1
    assert agency.lines() == ["a", "b", "undo b", "undo a"]
    assert agency.states(saga.txid) == ["compensated"] * 2


@pytest.mark.rule("R6")
def test_one_that_check_back_rolled_back_is_undone(agency: Agency) -> None:
    left_open(agency, "a")
    agency.stored.let_pass(LONG_AGO)
    check_once(agency.broker, CheckProfile(interval=timedelta(0)))
    assert agency.lines() == ["a"]
    assert agency.take_over() == 1
    assert agency.lines() == ["a", "undo a"]


@pytest.mark.rule("R6")
def test_an_owner_begins_no_step_after_check_back_rolled_back(agency: Agency) -> None:
    saga = agency.saga()
    saga.__enter__()
    agency.book(saga, "a")
    agency.stored.let_pass(LONG_AGO)
    check_once(agency.broker, CheckProfile(interval=timedelta(0)))
    with pytest.raises(DecidedOtherwise):
        agency.book(saga, "b")
    assert agency.lines() == ["a"]
    saga._steps.leave()


@pytest.mark.rule("R5", "R6")
def test_what_steps_of_a_run_have_done_is_undone_however_long_its_host_was_silent(agency: Agency) -> None:
    said = [RunState.UNREACHABLE]
    agency.broker.ask_runs(SimpleNamespace(state=lambda run: said[0]))
    saga = agency.broker.saga("travel", run="flow-1")
    saga.__enter__()
    agency.book(saga, "a")
    saga._steps.leave()
    agency.stored.let_pass(LONG_AGO)
    for says in (RunState.UNREACHABLE, RunState.OVER):
        said[0] = says
        check_once(agency.broker, CheckProfile(interval=timedelta(0), total_limit=timedelta(minutes=1)))
    assert agency.take_over() == 1
    assert agency.lines() == ["a", "undo a"]


@contextmanager
def killed_once_decided(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave the steps after the point of no return to another driver."""

    class Killed(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("txsaga.flows.saga_driver.SagaDriver.drive", die)
        yield


@pytest.mark.parametrize("consuming", [False, True], ids=["alone", "with a message"])
def test_behind_the_point_of_no_return_another_driver_goes_forward(
    agency: Agency, monkeypatch: pytest.MonkeyPatch, consuming: bool
) -> None:
    agency.broker.create_topic("orders", queues=1)
    agency.broker.producer("shop").send("orders", b"one")
    agency.told()
    consumer = agency.broker.consumer("agents", ["orders"], member="anna")
    (order,) = consumer.receive(1, wait=5)

    with killed_once_decided(monkeypatch), agency.saga() as saga:
        agency.book(saga, "a")
        if consuming:
            saga.consume(order)
        saga.no_return()
        saga.step(mail, input={"what": "a"})
        saga.step(BOOK, on="flights", input={"what": "b"})
    assert (done, agency.open_sagas()) == ([], 1)
    assert agency.take_over() == 1
    assert (done, agency.lines(), agency.lines("flights")) == (["mail a"], ["a"], ["b"])
    assert agency.open_sagas() == 0
    consumer.close()


@pytest.mark.rule("R4", "R6")
def test_a_driver_that_is_stopped_inside_a_step_does_not_stop_other_sagas(
    agency: Agency, monkeypatch: pytest.MonkeyPatch
) -> None:
    for what in ("b", "c"):
        with killed_once_decided(monkeypatch), agency.saga() as saga:
            saga.no_return()
            saga.step(BOOK, on="flights", input={"what": what})
    first = min(view.txid for view in agency.broker.kernel.store.work.sagas())
    begun, go_on = threading.Event(), threading.Event()

    def stopped(connection: Connection) -> None:
        connection.execute(text(BOOK), {"what": "b"})
        begun.set()
        go_on.wait(30)

    turn = Turn(agency.broker.kernel.store.registry.identity.transaction(first), first, 1, 1, BOOK)
    action = Action(kind=StepKind.CALL, what="stopped", resource="flights")
    earlier = threading.Thread(target=lambda: StepActions(agency.broker.kernel).do(turn, action, {}, function=stopped))
    earlier.start()
    begun.wait(30)
    assert (agency.take_over(), agency.lines("flights")) == (1, ["c"])
    (view,) = agency.broker.kernel.store.work.sagas()
    assert (view.txid, "is still running in another process" in view.why) == (first, True)
    go_on.set()
    earlier.join()
    assert (agency.take_over(), sorted(agency.lines("flights"))) == (1, ["b", "c"])


@pytest.mark.rule("R6")
def test_a_key_stays_closed_until_its_last_life_is_undone(agency: Agency) -> None:
    left_open(agency, "a", key="trip-7")
    agency.let_pass()
    check_once(agency.broker, CheckProfile(interval=timedelta(0)))
    agency.stored.rows("UPDATE saga SET until = until + interval '2 hours', driver = 'somebody'")
    with pytest.raises(NotCompensated, match="can be used again after that"), agency.saga("trip-7"):
        raise AssertionError
    agency.stored.rows("UPDATE saga SET until = until - interval '2 hours'")
    with agency.saga("trip-7") as saga:  # it undoes what is left before it begins
        assert agency.lines() == ["a", "undo a"]
        agency.book(saga, "b")
    assert agency.lines() == ["a", "undo a", "b"]


@pytest.mark.rule("R6")
def test_whoever_enters_the_key_of_one_that_is_not_decided_undoes_it_first(agency: Agency) -> None:
    before = left_open(agency, "a", key="trip-7")
    with agency.saga("trip-7") as saga:
        agency.book(saga, "b")
    assert agency.lines() == ["a", "undo a", "b"]
    assert before.txid != saga.txid
    with pytest.raises(Superseded):
        agency.book(before, "c")


@compensation("agency-fails")
def fails(what: str) -> None:
    """Fail each time."""
    done.append(f"tried {what}")
    raise Stop("no money")


@pytest.mark.rule("R6")
def test_a_compensation_that_is_out_of_retries_waits_for_a_person(agency: Agency) -> None:
    with pytest.raises(Stop) as raised, agency.saga() as saga:
        agency.book(saga, "a")
        saga.step(call, compensate=Undo(do=fails, retries=2, pause=0.001), input={"what": "b"})
        raise Stop
    assert "out of retries" in str(raised.value.__notes__)
    assert done == ["b", "tried b", "tried b", "tried b"]
    assert agency.states(saga.txid) == ["compensating", "compensation_failed"]
    assert "Stalled" in agency.facts
    (view,) = agency.broker.kernel.store.work.sagas()
    assert view.stalled and "Stop: no money" in view.why
    assert agency.take_over() == 0
    assert agency.lines() == ["a"]


def stalled(agency: Agency) -> int:
    """Leave a saga that waits for a person."""
    with pytest.raises(Stop), agency.saga() as saga:
        agency.book(saga, "a")
        saga.step(call, compensate=Undo(do=fails, retries=0), input={"what": "b"})
        raise Stop
    assert saga.txid is not None
    return saga.txid


def test_a_person_resumes_it_with_a_reason(agency: Agency, monkeypatch: pytest.MonkeyPatch) -> None:
    txid, hand = stalled(agency), SagasByHand(agency.broker.kernel)
    monkeypatch.setitem(CODE._functions, "agency-fails", call_off)
    (step,) = hand.resume(txid, who="anna", why="there is money now")
    assert step.number == 2
    assert SagaRecovery(agency.broker.kernel).run_once() == 1  # at once
    assert (done[-1], agency.lines()) == ("undo b", ["a", "undo a"])
    said = agency.broker.kernel.store.overview.history(txid)[-1]
    assert (said.what, said.who, said.why) == ("STEP RESUMED", "anna", "step 2 'call': there is money now")


def test_a_person_skips_it_with_a_reason(agency: Agency) -> None:
    txid, hand = stalled(agency), SagasByHand(agency.broker.kernel)
    hand.skip(txid, 2, who="anna", why="paid by hand")
    assert SagaRecovery(agency.broker.kernel).run_once() == 1
    assert agency.states(txid) == ["compensated", "skipped"]
    assert agency.lines() == ["a", "undo a"]
    assert agency.broker.kernel.store.overview.history(txid)[-1].what == "STEP SKIPPED"


def test_only_what_stands_still_is_resumed_or_skipped(agency: Agency) -> None:
    hand = SagasByHand(agency.broker.kernel)
    saga = left_open(agency, "x")
    assert saga.txid is not None
    with pytest.raises(IllegalTransition):
        hand.resume(saga.txid, who="anna", why="why not")
    with pytest.raises(IllegalTransition):
        hand.skip(saga.txid, 1, who="anna", why="why not")
    with pytest.raises(UnknownStep):
        hand.skip(saga.txid, 9, who="anna", why="why not")
    with pytest.raises(ConfigError, match="give a reason"):
        hand.skip(stalled(agency), 2, who="anna", why=" ")


def test_a_saga_whose_code_is_not_here_waits_and_says_so(agency: Agency, monkeypatch: pytest.MonkeyPatch) -> None:
    saga = left_open(agency, "a")
    with monkeypatch.context() as patch:
        patch.delitem(CODE._functions, "agency-cancel")
        patch.setattr(CODE, "unloaded", {"trips": "ModuleNotFoundError: No module named 'trips'"})
        assert agency.take_over() == 0
    (view,) = agency.broker.kernel.store.work.sagas()
    assert "'agency-cancel' is not registered in this process; module 'trips' can't be loaded" in view.why
    assert "TXSAGA_SAGAS" in view.why
    assert agency.broker.kernel.store.work.saga_figures().waiting == 1
    assert agency.states(saga.txid) == ["compensating"]
    assert agency.take_over() == 1
    assert agency.lines() == ["a", "undo a"]


def test_a_resource_that_is_not_known_here_is_waited_for(agency: Agency) -> None:
    left_open(agency, "a")
    engine = agency.broker._home._resources._engines.pop("bank")  # type: ignore[attr-defined]
    evidence = agency.broker._home._resources._evidence.pop("bank")  # type: ignore[attr-defined]
    assert agency.take_over() == 0
    (view,) = agency.broker.kernel.store.work.sagas()
    assert "'bank'" in view.why
    agency.broker._home._resources._engines["bank"] = engine  # type: ignore[attr-defined]
    agency.broker._home._resources._evidence["bank"] = evidence  # type: ignore[attr-defined]
    assert agency.take_over() == 1
    assert agency.lines() == ["a", "undo a"]


def test_a_forced_rollback_is_undone_too(agency: Agency) -> None:
    from txsaga.checkback.by_hand import ByHand

    saga = left_open(agency, "a")
    assert saga.txid is not None
    agency.stored.let_pass(LONG_AGO)
    ByHand(agency.broker.kernel).decide(saga.txid, Decision.ROLLBACK, who="anna", why="enough", force=True)
    assert agency.take_over() == 1
    assert agency.lines() == ["a", "undo a"]


def test_nobody_commits_a_saga_over_its_owners_head(agency: Agency) -> None:
    from txsaga.checkback.by_hand import ByHand

    saga = left_open(agency, "a")
    assert saga.txid is not None
    with pytest.raises((IllegalTransition, InDoubt)):
        ByHand(agency.broker.kernel).decide(saga.txid, Decision.COMMIT, who="anna", why="why not", force=True)


def test_what_is_stalled_is_told_to_whoever_waits_for_it(agency: Agency) -> None:
    with pytest.raises(CompensationFailed) as told, agency.saga() as saga:
        saga.step(call, compensate=Undo(do=fails, retries=0), input={"what": "b"})
        saga._deadlines.append((0.0, "b"))  # a reservation that is over
    assert told.value.txid == saga.txid
