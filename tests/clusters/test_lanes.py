"""Auxiliary lanes beside the brokers of a cluster: a unit that is open at the end follows the outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text

from tests.clusters.town import ORDERS, Town
from txsaga.core.decision import Decision
from txsaga.errors import RolledBack, TransactionError
from txsaga.flows.branch import BranchState

pytestmark = [pytest.mark.postgres, pytest.mark.core]

BOOK = "insert into book values (1)"


class Stop(Exception):
    """What the user's code raises."""


@pytest.fixture
def book(town: Town, foreign_databases: Callable[[], str]) -> Iterator[Engine]:
    """Give a database beside the brokers."""
    yield from registered(town, create_engine(foreign_databases()))


@pytest.fixture
def file(town: Town, tmp_path: Path) -> Iterator[Engine]:
    """Give one that can't vote."""
    yield from registered(town, create_engine(f"sqlite:///{tmp_path / 'book.db'}"))


def registered(town: Town, engine: Engine) -> Iterator[Engine]:
    with engine.begin() as connection:
        connection.exec_driver_sql("create table book (id int primary key)")
    town.coordinator.register("book", engine)
    yield engine
    engine.dispose()


def rows(engine: Engine) -> int:
    """Return how many rows everybody sees."""
    with engine.connect() as connection:
        return len(connection.execute(text("select id from book")).all())


@pytest.mark.req("IBM-28")
def test_an_open_unit_is_committed_with_the_messages(town: Town, book: Engine) -> None:
    with town.cluster().producer("shop").transaction() as tx:
        tx.send(ORDERS, b"one")
        with tx.lane("book") as connection:
            connection.exec_driver_sql(BOOK)
        assert tx.participants == ("b1",)
    assert tx.decision is Decision.COMMIT
    assert town.told("b1") == ["one"]
    assert rows(book) == 1
    assert town.states(tx.txid)["book"] is BranchState.COMMITTED


@pytest.mark.req("IBM-28")
def test_an_exception_rolls_an_open_unit_back_and_comes_out(town: Town, book: Engine) -> None:
    with pytest.raises(Stop), town.cluster().producer("shop").transaction() as tx:
        tx.send(ORDERS, b"one")
        with tx.lane("book") as connection:
            connection.exec_driver_sql(BOOK)
        raise Stop
    assert tx.decision is Decision.ROLLBACK
    assert [town.lives(name) for name in town.direct] == [["rolled_back"]] * 3
    assert rows(book) == 0
    assert set(town.states(tx.txid).values()) == {BranchState.ROLLED_BACK}


def test_a_unit_that_only_read_leaves_at_its_vote(town: Town, book: Engine) -> None:
    with town.cluster().producer("shop").transaction() as tx:
        tx.send(ORDERS, b"one")
        with tx.lane("book") as connection:
            assert connection.execute(text("select id from book")).all() == []
    assert tx.decision is Decision.COMMIT
    assert town.told("b1") == ["one"]


def test_a_no_of_a_unit_is_raised_also_where_a_broker_could_be_missed(town: Town, book: Engine) -> None:
    producer = town.cluster("multisend-guaranteed", needed=2).producer("shop")
    with pytest.raises(RolledBack) as told, producer.transaction() as tx:
        tx.send(ORDERS, b"one")
        with tx.lane("book") as connection:
            connection.exec_driver_sql(BOOK)
            with pytest.raises(Exception, match="duplicate key"):
                connection.exec_driver_sql(BOOK)
    assert "'book'" in "".join(told.value.__notes__)
    assert tx.decision is Decision.ROLLBACK
    assert town.all_told() == [[], [], []]


def test_a_unit_that_cannot_follow_the_outcome_is_refused(town: Town, file: Engine) -> None:
    with pytest.raises(TransactionError, match="commit it or roll it back"):
        with town.cluster().producer("shop").transaction() as tx:
            tx.send(ORDERS, b"one")
            with tx.lane("book") as connection:
                connection.exec_driver_sql(BOOK)
    assert tx.decision is Decision.ROLLBACK
    assert town.all_told() == [[], [], []]
    assert rows(file) == 0
