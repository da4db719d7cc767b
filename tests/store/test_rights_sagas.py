"""Sagas under logins that do not own the store: a producer runs them, an engine undoes them, an operator moves them."""

# Fixtures are named where they are asked for.
# ruff: noqa: F811

from __future__ import annotations

import pytest

from tests.flows.saga.agency import Stop, call, call_off, done, mail
from tests.scene.stored import Stored
from tests.store.opened_as import (  # noqa: F401  # fixtures
    Open,
    engine,
    made,
    open_as,
    operator,
)
from txsaga import Undo
from txsaga.broker import Broker
from txsaga.errors import RightsMissing, TxSagaError
from txsaga.flows.by_hand import SagasByHand
from txsaga.flows.requests import Begin
from txsaga.flows.saga_driver import SagaRecovery
from txsaga.store.right import Right

pytestmark = pytest.mark.postgres


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


def left(broker: Broker) -> int:
    """Leave a saga as a process does that dies behind its first step."""
    saga = broker.saga("travel").__enter__()
    saga.step(call, compensate=call_off, input={"what": "a"})
    saga._steps.leave()
    assert saga.txid is not None
    return saga.txid


def test_a_producer_runs_sagas_to_their_end(open_as: Open, operator: Broker) -> None:
    producer = open_as(Right.PRODUCER)
    with pytest.raises(Stop), producer.saga("travel", key="trip-7") as saga:
        saga.step(call, compensate=call_off, input={"what": "a"})
        raise Stop
    with producer.saga("travel", key="trip-7") as again:
        again.step(call, compensate=call_off, input={"what": "b"})
        again.send("orders", b"booked")
        again.no_return()
        again.step(mail, input={"what": "b"})
    assert done == ["a", "undo a", "b", "mail b"]
    assert producer.kernel.store.work.sagas() == []


def test_an_engine_undoes_what_a_producer_left(open_as: Open, engine: Broker, home_url: str) -> None:
    left(open_as(Right.PRODUCER))
    Stored(home_url).rows("UPDATE saga SET until = until - interval '1 hour'")
    assert SagaRecovery(engine.kernel, threads=1).run_once() == 1
    assert done == ["a", "undo a"]
    assert engine.kernel.store.work.sagas() == []


def test_an_operator_skips_a_step_and_another_producer_sees_nothing_of_it(
    open_as: Open, operator: Broker, engine: Broker, made: object
) -> None:
    producer = open_as(Right.PRODUCER)

    with pytest.raises(Stop), producer.saga("travel") as saga:
        saga.step(call, compensate=Undo(call_off, retries=0, input={"wrong": 1}), input={"what": "a"})
        raise Stop
    assert saga.txid is not None
    made.run("UPDATE producer_group SET role = 'nobody_at_all'")  # type: ignore[attr-defined]
    assert open_as(Right.PRODUCER).kernel.store.work.steps(saga.txid) == []
    SagasByHand(operator.kernel).skip(saga.txid, 1, who="anna", why="called off by hand")
    assert SagaRecovery(engine.kernel, threads=1).run_once() == 1
    assert operator.kernel.store.work.sagas() == []


def test_nobody_begins_a_saga_for_a_group_that_is_not_his(open_as: Open, made: object) -> None:
    producer = open_as(Right.PRODUCER)
    group = producer.kernel.store.registry.group("travel", transactional=True).id
    made.run("UPDATE producer_group SET role = 'nobody_at_all'")  # type: ignore[attr-defined]
    with pytest.raises(RightsMissing):
        producer.kernel.store.work.write([Begin(group)])


def test_a_consumer_knows_of_no_saga(open_as: Open) -> None:
    left(open_as(Right.PRODUCER))
    with pytest.raises(TxSagaError):
        open_as(Right.CONSUMER).kernel.store.work.sagas()
