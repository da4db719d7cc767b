"""A step that leaves no evidence is undone once nobody is in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Event, Thread
from unittest.mock import patch

import pytest

from tests.flows.flow.desks import Desks
from tests.flows.flow.undone import broken, call, call_off, fail, said, states, take_over, undone_by
from txsaga import Broker
from txsaga.checkback.heartbeat import Heartbeat
from txsaga.errors import (
    DecidedOtherwise,
    NotCompensated,
    TransactionError,
    TxSagaError,
)
from txsaga.flows.flow import Flow

pytestmark = pytest.mark.postgres


@pytest.fixture(autouse=True)
def _silence() -> None:
    said.clear()
    broken.clear()


class Slow:
    """A call that lasts until it is told to end, in a process of its own."""

    def __init__(self) -> None:
        self._in, self._end = Event(), Event()
        self.error: BaseException | None = None

    @contextmanager
    def call_in_another_process(self, desks: Desks, txid: int) -> Iterator[Broker]:
        """Be in it as long as the block lasts."""
        with desks.process() as broker, broker.flow(txid) as flow:
            thread = Thread(target=self._run, args=(flow,))
            thread.start()
            try:
                assert self._in.wait(30)
                yield broker
            finally:
                self._end.set()
                thread.join(30)

    def _run(self, flow: Flow) -> None:
        def phone(what: str) -> None:
            said.append(f"{what} begun")
            self._in.set()
            assert self._end.wait(60)
            said.append(f"{what} ended")

        try:
            flow.call("phone", phone, input={"what": "phone"}, compensate=call_off)
        except TxSagaError as error:
            self.error = error


@pytest.fixture
def slow() -> Slow:
    """Give a slow call."""
    return Slow()


def impatient() -> AbstractContextManager[object]:
    """Have whoever rolls back wait for nothing."""
    return patch("txsaga.flows.saga_driver.PATIENCE", 0.0)


@pytest.mark.rule("R6")
def test_a_call_is_undone_once_the_process_that_is_in_it_is_through(desks: Desks, slow: Slow) -> None:
    txid = desks.begin()
    with slow.call_in_another_process(desks, txid), desks.joined(txid) as flow:
        with impatient(), pytest.raises(NotCompensated, match="is still at work in step 'phone'"):
            flow.roll_back("the customer left")
        take_over(desks)
        assert said == ["phone begun"]
    assert isinstance(slow.error, DecidedOtherwise)
    assert said == ["phone begun", "phone ended"]
    take_over(desks)
    assert said == ["phone begun", "phone ended", "undo phone"]
    assert states(desks, txid) == ["compensated"]


@pytest.mark.rule("R6")
def test_a_step_without_a_resource_is_undone_once_nobody_is_in_it(desks: Desks) -> None:
    txid = desks.begin()
    with desks.joined(txid) as other:
        with pytest.raises(DecidedOtherwise), other.step("phone", **undone_by("phone")):
            with desks.joined(txid) as flow, impatient(), pytest.raises(NotCompensated):
                flow.roll_back()
            said.append("phone")
        take_over(desks)
    assert said == ["phone", "undo phone"]


@pytest.mark.rule("R6")
def test_a_process_that_died_in_a_call_is_waited_for_as_long_as_its_lease_runs(desks: Desks) -> None:
    txid = desks.begin()
    with desks.joined(txid) as dead:
        dead.step("phone", **undone_by("phone")).__enter__()  # and is never heard of again
        said.append("phone")
        with desks.joined(txid) as flow, impatient(), pytest.raises(NotCompensated, match="silent for 30 s"):
            flow.roll_back()
        desks.stored.let_leases_pass(31.0)
        take_over(desks)
    assert said == ["phone", "undo phone"]


@pytest.mark.rule("R6")
def test_a_long_call_goes_on_to_be_known_as_such(desks: Desks, slow: Slow) -> None:
    txid = desks.begin()
    with slow.call_in_another_process(desks, txid) as broker:
        desks.stored.let_leases_pass(31.0)
        Heartbeat(broker.kernel).run_once()
        with desks.joined(txid) as flow, impatient(), pytest.raises(NotCompensated):
            flow.roll_back()
        assert said == ["phone begun"]


def test_whoever_is_through_with_a_call_leaves_no_lease_behind(desks: Desks) -> None:
    txid = desks.begin()
    with desks.joined(txid) as flow:
        flow.call("book", call, input={"what": "book"}, compensate=call_off)
        with pytest.raises(ValueError, match="phone"):
            flow.call("phone", fail, input={"what": "phone"}, compensate=call_off)
        with pytest.raises(TransactionError), flow.step("ring", **undone_by("ring")), flow.step("twice"):
            pytest.fail("opened")  # pragma: no cover
    assert desks.stored.rows("SELECT * FROM lease WHERE kind = 'call'") == []
