"""Stores that take no halves, or no decisions: one that is told to, one that is not the primary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from sqlalchemy import NullPool, create_engine

import txsaga
from tests.scene.shop import ORDERS, Shop, closing, order, says
from tests.scene.stored import Stored
from txsaga import COMMIT, ROLLBACK, UNKNOWN, LocalState
from txsaga.errors import NotPrimary, SendFailed, TxSagaError
from txsaga.rocketmq import EndRequest, EndRequestHandler
from txsaga.wiring.connecting import open_store


@pytest.mark.req("RMQ-52")
def test_a_store_that_rejects_halves_names_itself(shop: Shop) -> None:
    producer = shop.mq_producer()
    waiting = producer.prepare_now(ORDERS, b"before")
    shop.store.registry.reject_transactions(True)
    reason = f"NO_PERMISSION: store {shop.broker.identity} rejects"
    attempts: list[Callable[[], object]] = [
        lambda: producer.send_message_in_transaction(order(), executor=says(COMMIT)),
        lambda: producer.prepare(ORDERS, b"").result(10),
    ]
    for attempt in attempts:
        with pytest.raises(TxSagaError, match=reason) as refused:
            attempt()
        assert refused.value.code == "NO_PERMISSION"
    with pytest.raises(TxSagaError, match=reason), producer.transaction() as tx:
        tx.send(order())
    with pytest.raises(TxSagaError, match=reason), producer.transaction(key="order-42") as tx:
        tx.send(order())
    with pytest.raises(TxSagaError, match=reason), producer.transaction() as tx:
        tx.later(ORDERS)
    assert [view.txid for view in shop.listed()] == [waiting.txid]
    assert producer.commit(waiting).won
    shop.store.registry.reject_transactions(False)
    producer.send_message_in_transaction(order("after"), executor=says(COMMIT))
    assert sorted(shop.bodies()) == ["after", "before"]


class Demoted:
    """A home database that becomes read-only, as a primary does that is made a standby."""

    def __init__(self, url: str) -> None:
        self._engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")

    def demote(self) -> None:
        """Let every session begin read-only, and end those that did not."""
        with self._engine.connect() as connection:
            name = connection.exec_driver_sql("SELECT current_database()").scalar()
            connection.exec_driver_sql(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
            connection.exec_driver_sql(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )


@pytest.fixture
def home(foreign_databases: Callable[[], str]) -> str:
    return foreign_databases()


@pytest.fixture
def standby_shop(home: str) -> Iterator[Shop]:
    open_store(home).close()
    with closing(Shop(txsaga.connect(home, roles=False, env={}), Stored(home).let_pass)) as shop:
        yield shop


@pytest.mark.req("RMQ-87")
def test_a_standby_refuses_ends_and_halves(standby_shop: Shop, home: str) -> None:
    shop, ends = standby_shop, list[EndRequest]()
    producer = shop.mq_producer(end_hooks=[ends.append])
    producer.send_message_in_transaction(order(), executor=says(UNKNOWN))
    (request,) = ends
    before = Stored(home).half(request.commit_log_offset)
    Demoted(home).demote()
    states: list[LocalState] = [COMMIT, ROLLBACK]
    for from_check in (False, True):
        for state in states:
            pending = EndRequestHandler(shop.broker.kernel).submit(replace(request, state=state, from_check=from_check))
            assert pending is not None
            with pytest.raises(NotPrimary, match="this server is a standby") as refused:
                pending.result(30)
            assert refused.value.code == "SLAVE_NOT_AVAILABLE"
    with pytest.raises(SendFailed) as failed:
        producer.send_message_in_transaction(order(), executor=says(COMMIT))
    assert failed.value.code == "SLAVE_NOT_AVAILABLE"
    assert shop.state(request.commit_log_offset) == "prepared"
    assert Stored(home).half(request.commit_log_offset) == before
