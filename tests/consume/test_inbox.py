"""Consumers whose effects lie in a database of their own: each happens once, whatever is delivered twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text

from tests.scene.shop import NEWS, Shop
from txsaga import inbox
from txsaga.consume.delivery import Delivery
from txsaga.errors import AlreadyDone

pytestmark = pytest.mark.core


@pytest.fixture
def books(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path / 'books.db'}")
    with engine.begin() as connection:
        connection.execute(text("create table entry (body text)"))
    yield engine
    engine.dispose()


def entries(books: Engine) -> list[str]:
    with books.connect() as connection:
        return list(connection.scalars(text("select body from entry order by body")))


def enter(books: Engine, message: Delivery) -> None:
    with books.begin() as connection, inbox(connection, message):
        connection.execute(text("insert into entry values (:body)"), {"body": message.text()})


@pytest.mark.req("RMQ-66")
def test_a_consumer_that_fails_twice_has_its_effect_once_and_the_gap_is_seen_meanwhile(
    shop: Shop, books: Engine
) -> None:
    shop.broker.create_group("billing", first_retry=timedelta(0))
    receipt = shop.broker.producer("plain").send(NEWS, b"1")
    shop.deliver()
    seen = []
    for message in shop.broker.consumer("billing", [NEWS]).messages(wait=0.5):
        with message:
            seen.append((shop.state(receipt.txid), message.attempts, entries(books)))
            if message.attempts < 3:
                with books.begin() as connection, inbox(connection, message):
                    connection.execute(text("insert into entry values ('half done')"))
                    raise InterruptedError
            enter(books, message)
    assert seen == [("committed", attempt, []) for attempt in (1, 2, 3)]
    assert entries(books) == ["1"]


@pytest.mark.req("RMQ-75", "RMQ-66")
def test_a_consumer_that_died_before_its_acknowledgement_does_the_effect_no_second_time(
    shop: Shop, books: Engine
) -> None:
    shop.broker.producer("plain").send_many(NEWS, [b"1", b"2"])
    shop.deliver()
    with shop.broker.consumer("billing", [NEWS], invisible=timedelta(seconds=0.1)) as dead:
        first, *_ = dead.receive()
        enter(books, first)  # and nobody acknowledges
    seen = []
    for message in shop.broker.consumer("billing", [NEWS]).messages(wait=1):
        seen.append((message.text(), message.attempts))
        with message:
            enter(books, message)
    assert ("1", 2) in seen
    assert entries(books) == ["1", "2"]


@pytest.mark.req("RMQ-75")
def test_a_reader_that_starts_again_before_it_committed_does_the_effect_no_second_time(
    shop: Shop, books: Engine
) -> None:
    shop.broker.producer("plain").send(NEWS, b"1")
    shop.deliver()
    for done in (False, True):
        with closing(shop.broker.stream("reports", [NEWS])) as stream:
            batch = stream.poll()
            assert batch is not None
            (message,) = batch.messages()
            try:
                with books.begin() as connection, inbox(connection, message, group="reports"):
                    connection.execute(text("insert into entry values ('1')"))
                assert not done
            except AlreadyDone:
                assert done
    assert entries(books) == ["1"]
