"""Half messages of a client that is not ours: where they are stored, what an end carries, and who refuses it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from rocketmq import ClientConfiguration, Credentials, Message, Producer, TransactionChecker
from sqlalchemy import text

import txsaga
from tests.chaos.world import database
from tests.gateway.calling import RawClient, listening, message
from tests.gateway.test_checks import answering, state
from tests.messages.test_refusing_stores import Demoted
from txsaga.broker import Broker
from txsaga.core.topic import HALF_TOPIC
from txsaga.gateway import wire
from txsaga.gateway.handles import end_of
from txsaga.gateway.sending import SendingCalls
from txsaga.gateway.status import Code
from txsaga.wiring.connecting import open_store

pytestmark = pytest.mark.postgres
COMMIT = wire.number("TransactionResolution", "COMMIT")
CLIENT, CHECK = (wire.number("TransactionSource", name) for name in ("SOURCE_CLIENT", "SOURCE_SERVER_CHECK"))


def half(client: RawClient, **given: Any) -> Any:
    (entry,) = client.send(message("orders", type="TRANSACTION", **given)).entries
    assert Code(entry.status.code) is Code.OK
    return entry


def number(broker: Broker, entry: Any) -> int:
    return broker.identity.own(entry.transaction_id.split(".")[0])


@pytest.mark.req("RMQ-16")
def test_a_half_is_stored_under_the_half_topic_and_remembers_its_own(client: RawClient, broker: Broker) -> None:
    (view,) = broker.kernel.store.halves.views(number(broker, half(client)))
    assert (view.topic, view.queue, view.flag, view.prepared) == (HALF_TOPIC, 0, "NOT", True)
    assert (view.real_topic, view.real_queue, view.group) == ("orders", 0, "orders")


@pytest.mark.req("RMQ-51")
def test_a_half_that_is_retried_with_a_delay_is_taken_as_a_message_for_later(client: RawClient, broker: Broker) -> None:
    retried: dict[str, Any] = {"delivery_attempt": 2, "delivery_timestamp": {"seconds": int(time.time()) + 1}}
    (kept,) = client.send(message("later", b"kept", type="TRANSACTION", **retried)).entries
    (refused,) = client.send(message("orders", type="TRANSACTION", **retried)).entries
    assert (Code(kept.status.code), kept.transaction_id) == (Code.OK, "")
    assert Code(refused.status.code) is Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert [each.body for each in client.messages("readers", "later")] == [b"kept"]
    assert broker.kernel.store.overview.transactions(undecided=True, limit=1) == []


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record the ends that clients send."""
    seen: list[Any] = []
    serve = SendingCalls.end_transaction

    async def record(calls: SendingCalls, request: Any) -> Any:
        seen.append(request)
        return await serve(calls, request)

    monkeypatch.setattr(SendingCalls, "end_transaction", record)
    return seen


class CommitAll(TransactionChecker):  # type: ignore[misc]  # it has no types
    """Commits whatever it is asked about."""

    def check(self, message: Any) -> Any:
        """Answer."""
        from rocketmq import TransactionResolution

        return TransactionResolution.COMMIT


@pytest.fixture
def official(ends: list[Any], gateway: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Start a producer of the official Python client."""
    monkeypatch.setenv("HOME", str(tmp_path))
    producer = Producer(
        ClientConfiguration(gateway, Credentials(), request_timeout=1), ("orders",), checker=CommitAll()
    )
    producer.startup()
    yield producer
    producer.shutdown()


def begun(producer: Any) -> tuple[Any, Any]:
    order, transaction = Message(), producer.begin_transaction()
    order.topic, order.body = "orders", b"hello"
    return transaction, producer.send(order, transaction)


@pytest.mark.req("RMQ-47", "RMQ-62")
def test_the_ends_of_an_official_client_name_the_half_that_they_are_for(
    official: Any, ends: list[Any], broker: Broker
) -> None:
    transaction, ended = begun(official)
    transaction.commit()
    _, left = begun(official)
    with answering(broker):
        until = time.monotonic() + 30
        while len(ends) < 2:
            assert time.monotonic() < until
            time.sleep(0.05)
    for end, receipt, source in zip(ends, (ended, left), (CLIENT, CHECK), strict=False):
        assert (end.topic.name, end.message_id, end.transaction_id, end.resolution, end.source) == (
            "orders",
            receipt.message_id,
            receipt.transaction_id,
            COMMIT,
            source,
        )
        found = end_of(broker.identity, end.transaction_id, txsaga.Decision.COMMIT)
        (view,) = broker.kernel.store.halves.views(found.txid)
        assert (view.group, found.group) == ("orders", broker.kernel.store.registry.group("orders").id)


@pytest.mark.req("RMQ-49")
def test_an_end_that_takes_too_long_is_back_in_time_and_done_all_the_same(
    official: Any, broker: Broker, home_url: str
) -> None:
    transaction, receipt = begun(official)
    with database(home_url.partition("?")[0]) as engine, engine.connect() as connection:
        connection.execute(text(f"LOCK TABLE {broker.kernel.store.namespace}.op IN ACCESS EXCLUSIVE MODE"))
        begin = time.monotonic()
        with pytest.raises(Exception, match=r"."):  # the client raises what its library calls a timeout
            transaction.commit()
        assert time.monotonic() - begin < 5
    wait_until(lambda: state(broker, receipt) == "committed")


def wait_until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.req("RMQ-52")
def test_a_store_that_rejects_halves_says_which_it_is(client: RawClient, broker: Broker) -> None:
    entry = half(client)
    broker.kernel.store.registry.reject_transactions(True)
    (refused,) = client.send(message("orders", type="TRANSACTION")).entries
    assert Code(refused.status.code) is Code.FORBIDDEN
    assert str(broker.identity) in refused.status.message
    assert Code(client.end(entry.transaction_id, "COMMIT").status.code) is Code.OK


@pytest.fixture
def alone(foreign_databases: Callable[[], str]) -> Iterator[tuple[str, Broker, RawClient]]:
    """Give a gateway on a database of its own, and a client of it."""
    home = foreign_databases()
    open_store(home).close()
    with txsaga.connect(home, roles=False, env={}) as broker:
        broker.create_topic("orders", "transaction", queues=1)
        with listening(broker) as address, RawClient(address) as client:
            yield home, broker, client


@pytest.mark.req("RMQ-87")
def test_a_standby_refuses_ends_and_halves(alone: tuple[str, Broker, RawClient]) -> None:
    home, broker, client = alone
    entry = half(client)
    Demoted(home).demote()
    for resolution in ("COMMIT", "ROLLBACK"):
        assert Code(client.end(entry.transaction_id, resolution).status.code) is Code.HA_NOT_AVAILABLE
    (refused,) = client.send(message("orders", type="TRANSACTION")).entries
    assert Code(refused.status.code) is Code.HA_NOT_AVAILABLE
    assert [view.prepared for view in broker.kernel.store.halves.views(number(broker, entry))] == [True]


OTHER = "ALTER TABLE {s}.op ADD CONSTRAINT full_disk CHECK (false) NOT VALID"


@pytest.mark.req("RMQ-90")
def test_an_end_that_can_not_be_written_says_so_and_leaves_the_half(alone: tuple[str, Broker, RawClient]) -> None:
    home, broker, client = alone
    entry, s = half(client), broker.kernel.store.namespace
    with database(home) as engine, engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT")
        connection.execute(text(OTHER.format(s=s)))
        refused = client.end(entry.transaction_id, "COMMIT")
        assert Code(refused.status.code) is Code.INTERNAL_SERVER_ERROR
        connection.execute(text(f"ALTER TABLE {s}.op DROP CONSTRAINT full_disk"))
    assert [view.prepared for view in broker.kernel.store.halves.views(number(broker, entry))] == [True]
    assert Code(client.end(entry.transaction_id, "COMMIT").status.code) is Code.OK
