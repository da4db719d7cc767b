"""Steps commit one by one, and are undone one by one where the saga fails."""

from __future__ import annotations

from contextlib import nullcontext, suppress

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from tests.flows.saga.agency import BOOK, CANCEL, TRIPS, Agency, Stop, book, call, call_off, cancel, done, mail
from txsaga import Decision
from txsaga.core.lifecycle import TxState
from txsaga.errors import (
    AlreadyCommitted,
    ConfigError,
    InvalidMessage,
    SagaError,
    ServiceRefused,
    TransactionClosed,
    TransactionError,
)
from txsaga.flows.actions import compensation

pytestmark = pytest.mark.postgres


def test_steps_that_succeed_stay_and_the_message_is_published(agency: Agency) -> None:
    with agency.saga() as saga:
        agency.book(saga, "a", "b")
        saga.send(TRIPS, b"booked")
        assert agency.told() == []
    assert (agency.lines(), agency.told()) == (["a", "b"], ["booked"])
    assert saga.decision is Decision.COMMIT
    assert agency.open_sagas() == 0


@pytest.mark.req("CARD-06")
@pytest.mark.rule("R6")
def test_steps_before_the_one_that_fails_are_undone_in_reverse_and_it_is_not(agency: Agency) -> None:
    with pytest.raises(DBAPIError), agency.saga() as saga:
        agency.book(saga, "a", "b")
        saga.send(TRIPS, b"booked")
        agency.book(saga, "a")
    assert agency.lines() == ["a", "b", "undo b", "undo a"]
    assert agency.told() == []
    assert saga.decision is Decision.ROLLBACK
    assert agency.states(saga.txid) == ["compensated"] * 3
    assert agency.open_sagas() == 0


@pytest.mark.rule("R6")
def test_nothing_is_undone_before_rollback_stands(agency: Agency) -> None:
    with pytest.raises(Stop), agency.saga() as saga:
        agency.book(saga, "a")
        agency.facts.clear()
        raise Stop
    facts = [fact for fact in agency.facts if fact in ("Decided", "Compensating", "Worked")]
    assert facts == ["Decided", "Compensating", "Worked"]


def test_a_step_is_written_down_before_it_runs(agency: Agency) -> None:
    with agency.saga() as saga:

        def look() -> list[str]:
            return agency.states(saga.txid)

        assert saga.step(look, compensate=call_off) == ["started"]


def test_steps_that_nothing_can_undo_are_written_down_before_they_run_too(agency: Agency) -> None:
    with agency.saga() as saga:

        def look() -> list[str]:
            return agency.states(saga.txid)

        assert saga.step(look) == ["started"]
        assert saga.step(call, input={"what": "a"}) == "reference of a"
        assert agency.states(saga.txid) == ["done", "started"]
    first, second = agency.broker.kernel.store.work.steps(saga.txid or 0)
    assert (first.state, first.output, second.state, second.output) == (
        "done",
        '["started"]',
        "done",
        '"reference of a"',
    )
    view = agency.broker.kernel.store.overview.transaction(saga.txid or 0)
    assert view is not None and view.state == TxState.COMMITTED


def test_of_steps_only_those_that_something_can_undo_are_undone(agency: Agency) -> None:
    with pytest.raises(Stop), agency.saga() as saga:
        saga.step(call, input={"what": "a"})
        saga.step(call, input={"what": "b"}, compensate=call_off)
        saga.step(call, input={"what": "c"})
        assert agency.states(saga.txid) == ["done", "done", "started"]
        raise Stop
    assert done == ["a", "b", "c", "undo b"]
    assert agency.states(saga.txid) == ["compensated"] * 3


def test_a_saga_that_nothing_can_undo_can_roll_back_too(agency: Agency) -> None:
    with pytest.raises(Stop), agency.saga() as saga:
        saga.step(call, input={"what": "a"})
        raise Stop
    assert agency.states(saga.txid) == ["compensated"]
    assert agency.open_sagas() == 0


def test_what_is_sent_belongs_to_the_saga_of_the_steps(agency: Agency) -> None:
    with agency.saga() as saga:
        saga.step(call, input={"what": "a"})
        assert agency.states(saga.join_life().txid) == ["started"]
        saga.send(TRIPS, b"a")
    assert agency.told() == ["a"]
    assert agency.states(saga.txid) == ["done"]


def test_a_statement_is_a_step_and_so_is_its_compensation(agency: Agency) -> None:
    with pytest.raises(Stop), agency.saga() as saga:
        assert saga.step(BOOK, on="bank", compensate=CANCEL, input={"what": "a"}) == 1
        assert saga.step("select what from line", on="bank") == [["a"]]
        raise Stop
    assert agency.lines() == ["a", "undo a"]


def test_steps_work_in_any_number_of_resources(agency: Agency) -> None:
    with pytest.raises(Stop), agency.saga() as saga:
        agency.book(saga, "a", on="bank")
        agency.book(saga, "b", on="flights")
        raise Stop
    assert (agency.lines("bank"), agency.lines("flights")) == (["a", "undo a"], ["b", "undo b"])


def test_a_compensation_gets_what_its_step_returned(agency: Agency) -> None:
    from txsaga import compensation

    heard: list[object] = []

    @compensation("hear-output")
    def hear(what: str, output: object, step: str) -> None:
        heard.append((what, output, step))

    with pytest.raises(Stop), agency.saga() as saga:
        assert saga.step(call, compensate=hear, input={"what": "a"}) == "reference of a"
        raise Stop
    assert heard == [("a", "reference of a", f"{saga.id}:1:undo")]


@pytest.mark.req("CARD-06")
def test_a_failed_step_that_left_no_evidence_is_undone_too(agency: Agency) -> None:
    def fails(what: str) -> None:
        call(what)
        raise Stop

    with pytest.raises(Stop), agency.saga() as saga:
        saga.step(call, compensate=call_off, input={"what": "a"})
        saga.step(fails, compensate=call_off, input={"what": "b"})
    assert done == ["a", "b", "undo b", "undo a"]


def test_a_sure_no_leaves_nothing_to_undo(agency: Agency) -> None:
    def refuses(what: str) -> None:
        raise ServiceRefused("sold out")

    with pytest.raises(ServiceRefused), agency.saga() as saga:
        saga.step(refuses, compensate=call_off, input={"what": "a"})
    assert done == []


@pytest.mark.req("IBM-59", "IBM-60")
def test_a_failure_that_is_handled_does_not_roll_back(agency: Agency) -> None:
    given = {"what": "a"}
    with agency.saga() as saga:
        agency.book(saga, "a")
        try:
            saga.step(book, on="bank", compensate=cancel, input=given)
        except DBAPIError:
            assert given == {"what": "a"}
            agency.book(saga, "b")
    assert agency.lines() == ["a", "b"]
    assert saga.decision is Decision.COMMIT


@pytest.mark.req("IBM-60")
def test_the_same_failure_unhandled_rolls_back(agency: Agency) -> None:
    with pytest.raises(DBAPIError), agency.saga() as saga:
        agency.book(saga, "a", "a")
    assert agency.lines() == ["a", "undo a"]
    assert saga.decision is Decision.ROLLBACK


def test_a_handled_failure_of_which_nobody_knows_what_it_left_rolls_back(agency: Agency) -> None:
    def fails(what: str) -> None:
        call(what)
        raise Stop

    with pytest.raises(SagaError, match="is unknown"), agency.saga() as saga:
        try:
            saga.step(fails, compensate=call_off, input={"what": "a"})
        except Stop:
            pass
    assert done == ["a", "undo a"]


@pytest.mark.rule("R14")
@pytest.mark.parametrize("handled", [False, True])
def test_a_step_that_commits_by_itself_and_fails_is_undone_and_not_tried_again(agency: Agency, handled: bool) -> None:
    def half(connection: Connection, what: str) -> None:
        book(connection, what)
        connection.exec_driver_sql("COMMIT")
        raise Stop

    failed = pytest.raises(TransactionClosed, match="before it failed")
    with pytest.raises(SagaError if handled else TransactionClosed), agency.saga() as saga:
        with failed if handled else nullcontext():
            saga.step(half, on="bank", compensate=cancel, input={"what": "a"}, retries=2, pause=0)
        saga.send(TRIPS, b"a")
    assert (agency.lines(), agency.told()) == (["a", "undo a"], [])


def test_a_step_is_tried_again_as_often_as_it_says(agency: Agency) -> None:
    tries: list[int] = []

    def flaky() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise Stop
        return len(tries)

    with agency.saga() as saga:
        assert saga.step(flaky, retries=2, pause=0.001) == 3
    assert agency.states(saga.txid)[0] in ("started", "done")


@pytest.mark.req("IBM-66")
def test_a_step_without_compensation_survives_the_rollback(agency: Agency) -> None:
    with pytest.raises(Stop), agency.saga() as saga:
        saga.step(BOOK, on="flights", input={"what": "audit: tried"})
        agency.book(saga, "a")
        raise Stop
    assert agency.lines("flights") == ["audit: tried"]
    assert agency.lines("bank") == ["a", "undo a"]


def test_messages_alone_are_decided_like_rows(agency: Agency) -> None:
    with agency.saga() as saga:
        saga.send(TRIPS, b"hello")
    assert agency.told() == ["hello"]
    with agency.saga() as nothing:
        pass
    assert (nothing.txid, nothing.decision, agency.open_sagas()) == (None, None, 0)


def test_behind_the_point_of_no_return_a_step_waits_for_the_decision(agency: Agency) -> None:
    with agency.saga() as saga:
        agency.book(saga, "a")
        saga.no_return()
        later = saga.step(mail, input={"what": "a"})
        assert not later.done and done == []
    assert done == ["mail a"]
    assert later.result() == "mailed a"
    assert agency.states(saga.txid)[-1] == "done"
    assert agency.open_sagas() == 0


def test_behind_the_point_of_no_return_a_failure_is_tried_again_until_it_is_done(agency: Agency) -> None:
    from txsaga import compensation

    tries: list[str] = []

    @compensation("flaky-mail")
    def flaky(what: str) -> None:
        tries.append(what)
        if len(tries) < 4:
            raise Stop

    with agency.saga() as saga:
        agency.book(saga, "a")
        saga.no_return()
        saga.step(flaky, input={"what": "a"}, pause=0.001)
    assert tries == ["a"] * 4
    assert agency.lines() == ["a"]


def test_what_is_behind_the_point_of_no_return_never_was_where_the_saga_fails(agency: Agency) -> None:
    with pytest.raises(Stop), agency.saga() as saga:
        agency.book(saga, "a")
        saga.no_return()
        saga.step(mail, input={"what": "a"})
        raise Stop
    assert (done, agency.lines(), agency.open_sagas()) == ([], ["a", "undo a"], 0)


async def later(**_: object) -> None:
    raise AssertionError("nobody awaits it")


def test_a_compensation_is_no_async_function() -> None:
    with pytest.raises(ConfigError, match="what is registered is an async function"):
        compensation("tests-later")(later)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"do": BOOK}, "pass on="),
        ({"do": 5}, "a step is int"),
        ({"do": later}, "a step is an async function, it would never run"),
        ({"do": call, "compensate": lambda: None}, "register it"),
        ({"do": call, "input": {"x": object()}}, "must be JSON"),
        ({"do": call, "retries": -1}, "0 or more"),
        ({"do": call, "timeout": -1}, "0 or more"),
        ({"do": call, "input": 5}, "give a mapping"),
        ({"do": call, "input": {"x": "\0"}}, "U\\+0000"),
    ],
)
def test_a_mistake_is_told_before_anything_runs(agency: Agency, wrong: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told), agency.saga() as saga:
        saga.step(**wrong)  # type: ignore[arg-type]
    assert (done, saga.txid) == ([], None)


def test_behind_the_point_of_no_return_nothing_is_undone(agency: Agency) -> None:
    with pytest.raises(ConfigError, match="leave compensate= out"), agency.saga() as saga:
        saga.no_return()
        saga.step(mail, compensate=call_off, input={"what": "a"})


def test_a_key_is_done_once(agency: Agency) -> None:
    with agency.saga("trip-7") as saga:
        agency.book(saga, "a")
    with pytest.raises(AlreadyCommitted), agency.saga("trip-7") as again:
        agency.book(again, "b")
    assert agency.lines() == ["a"]


def test_a_key_opens_again_once_it_is_undone(agency: Agency) -> None:
    with pytest.raises(Stop), agency.saga("trip-7") as saga:
        agency.book(saga, "a")
        raise Stop
    with agency.saga("trip-7") as again:
        agency.book(again, "b")
    assert agency.lines() == ["a", "undo a", "b"]
    assert saga.txid != again.txid


def test_a_block_is_used_once(agency: Agency) -> None:
    saga = agency.saga()
    with pytest.raises(TransactionError):
        saga.step(call, input={"what": "a"})
    with saga:
        pass
    with pytest.raises(TransactionClosed):
        saga.step(call, input={"what": "a"})


def test_a_saga_that_grew_too_big_is_undone_even_if_that_error_is_dropped(
    agency: Agency, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txsaga.messages.message_buffer.MOST", 1_000)
    with pytest.raises(TransactionError, match="no room"), agency.saga() as saga:
        agency.book(saga, "a")
        saga.send(TRIPS, b"small")
        with suppress(InvalidMessage):
            saga.send(TRIPS, b"x" * 2_000)
    assert (agency.lines(), agency.told()) == (["a", "undo a"], [])
