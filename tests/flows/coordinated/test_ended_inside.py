"""Work whose transaction was ended inside its block is no part of the outcome, whatever came behind it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, event
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from tests.flows.coordinated.bank import START
from tests.flows.coordinated.conftest import OpenBank
from txsaga.errors import ConfigError, RolledBack, TransactionError
from txsaga.flows.enlisted import Enlisted

pytestmark = [pytest.mark.postgres, pytest.mark.req("IBM-50")]

KINDS = pytest.mark.parametrize("kind", ["sqlite", "postgresql"])


def change(connection: Connection, amount: int) -> None:
    connection.exec_driver_sql(f"update account set balance = balance + {amount} where id = 1")


def by_the_driver(connection: Connection) -> None:
    driver = connection.connection.driver_connection
    assert driver is not None
    driver.rollback()
    change(connection, 1000)


def by_statements(connection: Connection) -> None:
    connection.exec_driver_sql("rollback")
    connection.exec_driver_sql("begin")
    change(connection, 1000)


def by_the_connection(connection: Connection) -> None:
    connection.rollback()
    change(connection, 1000)


ENDINGS = pytest.mark.parametrize("ending", [by_the_driver, by_statements, by_the_connection])


@KINDS
@ENDINGS
def test_the_whole_transaction_rolls_back(opened: OpenBank, kind: str, ending: Callable[[Connection], None]) -> None:
    bank = opened("postgresql", kind)
    first, second = bank.engines
    with pytest.raises(Exception, match=r"rolled back inside|closed"), bank.producer.coordinated(first, second) as tx:
        with tx.on(first) as connection:
            change(connection, -10)
        with tx.on(second) as connection, suppress(SQLAlchemyError):
            change(connection, 10)
            ending(connection)
    assert bank.balances() == {first: START, second: START}


@KINDS
@ENDINGS
def test_a_unit_of_a_lane_rolls_back(opened: OpenBank, kind: str, ending: Callable[[Connection], None]) -> None:
    bank = opened(kind)
    (name,) = bank.engines
    with bank.producer.coordinated(name) as tx:
        with tx.lane(name) as connection, suppress(SQLAlchemyError):
            change(connection, 10)
            ending(connection)
        with pytest.raises(RolledBack, match="inside"):
            tx.lane(name).commit()
    assert bank.balances() == {name: START}


@pytest.mark.parametrize("lane", [False, True])
def test_an_error_that_ends_the_transaction_in_sqlite_is_found_though_it_was_dropped(
    opened: OpenBank, lane: bool
) -> None:
    bank = opened("sqlite")
    ((name, engine),) = bank.engines.items()
    with engine.begin() as connection:
        connection.exec_driver_sql("create table seen (id int primary key on conflict rollback)")
        connection.exec_driver_sql("insert into seen values (1)")
    with pytest.raises(RolledBack, match="by an error that was dropped"), bank.producer.coordinated(name) as tx:
        with tx.lane(name) if lane else tx.on(name) as connection:
            change(connection, 10)
            with suppress(IntegrityError):
                connection.exec_driver_sql("insert into seen values (1)")
            connection.exec_driver_sql("insert into seen values (2)")  # the driver begins another transaction for it
        if lane:
            tx.lane(name).commit()
    assert bank.balances() == {name: START}


def test_a_savepoint_of_the_user_is_left_to_the_user(opened: OpenBank) -> None:
    bank = opened("sqlite")
    (name,) = bank.engines
    with bank.producer.coordinated(name) as tx, tx.on(name) as connection:
        change(connection, 10)
        with suppress(ZeroDivisionError), connection.begin_nested():
            change(connection, 1000)
            raise ZeroDivisionError
        connection.exec_driver_sql("savepoint mine")
        change(connection, 1)
    assert bank.balances() == {name: START + 11}


@pytest.mark.parametrize("end", ["close", "invalidate"])
def test_a_connection_to_sqlite_that_was_closed_inside_rolls_back(opened: OpenBank, end: str) -> None:
    bank = opened("postgresql", "sqlite")
    first, second = bank.engines
    with pytest.raises(RolledBack, match="its connection was closed"), bank.producer.coordinated(first, second) as tx:
        with tx.on(first) as connection:
            change(connection, -10)
        with tx.on(second) as connection:
            change(connection, 10)
            getattr(connection, end)()
    assert bank.balances() == {first: START, second: START}


def test_a_file_that_is_read_only_is_refused_before_any_work(opened: OpenBank) -> None:
    bank = opened("postgresql", "sqlite")
    first, second = bank.engines
    with bank.producer.coordinated(second) as tx, tx.on(second) as connection:
        change(connection, 1)
    file = bank.engines[second].url.database
    bank.broker.register("shown", create_engine(f"sqlite:///file:{file}?mode=ro&uri=true"))
    with pytest.raises(ConfigError, match="resource 'shown' is read only; leave it out, or open it for writing"):
        with bank.producer.coordinated(first, "shown"):
            raise AssertionError("it began")
    assert bank.prepared() == []


def test_an_engine_of_sqlite_that_begins_by_itself_takes_part(opened: OpenBank) -> None:
    bank = opened("sqlite")
    ((name, engine),) = bank.engines.items()
    own = create_engine(engine.url)

    @event.listens_for(own, "connect")
    def _leave_to_events(driver: sqlite3.Connection, _: object) -> None:
        driver.isolation_level = None

    @event.listens_for(own, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    bank.broker.register("own", own)
    with bank.producer.coordinated("own") as tx, tx.on("own") as connection:
        change(connection, 5)
    with bank.producer.transaction() as plain, plain.local("own") as connection:
        change(connection, 5)
    assert bank.balances() == {name: START + 10}
    own.dispose()


def test_an_interrupt_behind_the_votes_says_that_it_may_stand(
    opened: OpenBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = opened("postgresql", "postgresql")
    tx = bank.producer.coordinated(*bank.engines)
    decide = Enlisted.decide

    def interrupted(*given: Any, **named: Any) -> None:  # as it is called
        decide(*given, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(Enlisted, "decide", interrupted)
    with pytest.raises(KeyboardInterrupt) as told, tx:
        for name in bank.engines:
            with tx.on(name) as connection:
                change(connection, 1)
    assert told.value.__notes__ == [f"transaction {tx.txid} may stand committed: ask before it is done again"]
    monkeypatch.undo()
    bank.recover()
    assert bank.balances() == dict.fromkeys(bank.engines, START + 1)


@pytest.mark.parametrize("method", ["on", "lane"])
def test_a_resource_is_named_by_a_text(opened: OpenBank, method: str) -> None:
    bank = opened("sqlite")
    with pytest.raises(ConfigError, match="give the name of a registered one"):
        with bank.producer.coordinated(*bank.engines) as tx, getattr(tx, method)([*bank.engines]):
            pass


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("kind", ["sqlite", "postgresql", pytest.param("mariadb", marks=pytest.mark.mariadb)])
def test_commit_inside_a_branch_is_refused_and_nothing_is_committed(opened: OpenBank, kind: str, dropped: bool) -> None:
    bank = opened("postgresql", kind)
    first, second = bank.engines
    refused = DBAPIError if kind == "mariadb" else TransactionError  # MariaDB refuses it by itself
    with pytest.raises(RolledBack if dropped else refused), bank.producer.coordinated(first, second) as tx:
        with tx.on(first) as connection:
            change(connection, -10)
        with tx.on(second) as connection, suppress(refused) if dropped else nullcontext():
            change(connection, 10)
            connection.commit()
    assert bank.balances() == {first: START, second: START}


@KINDS
def test_every_further_commit_inside_a_branch_is_refused(opened: OpenBank, kind: str) -> None:
    bank = opened("postgresql", kind)
    first, second = bank.engines
    with pytest.raises(RolledBack), bank.producer.coordinated(first, second) as tx:
        with tx.on(first) as connection:
            change(connection, -10)
        with tx.on(second) as connection:
            for _ in range(3):
                change(connection, 10)
                with pytest.raises(TransactionError, match="is refused"):
                    connection.commit()
                connection.rollback()
    assert bank.balances() == {first: START, second: START}


@KINDS
def test_a_commit_past_sqlalchemy_is_named_with_what_it_leaves(opened: OpenBank, kind: str) -> None:
    bank = opened("postgresql", kind)
    first, second = bank.engines
    with (
        pytest.raises(RolledBack, match="work that a COMMIT included is durable, so check before you repeat it"),
        bank.producer.coordinated(first, second) as tx,
    ):
        with tx.on(first) as connection:
            change(connection, -10)
        with tx.on(second) as connection:
            change(connection, 10)
            connection.exec_driver_sql("COMMIT")
    assert bank.balances() == {first: START, second: START + 10}
