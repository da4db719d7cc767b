"""A lane and the main work that wait for each other are refused, not left waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, Engine, create_engine

from tests.engine.coordinator.bank import START, TRANSFERS
from tests.engine.coordinator.conftest import OpenBank
from txsaga.errors import TransactionError
from txsaga.errors.flows import OwnLock
from txsaga.model.decision import Decision

pytestmark = [pytest.mark.postgres, pytest.mark.rule("R17")]

AT_MOST = 2.0
VOTERS = pytest.mark.parametrize("kind", ["postgresql", pytest.param("mariadb", marks=pytest.mark.mariadb)])


@contextmanager
def refused(match: str) -> Iterator[None]:
    """Expect a refusal, and that nobody waited for it for long."""
    began = time.monotonic()
    with pytest.raises(OwnLock, match=match):
        yield
    assert time.monotonic() - began < 2 * AT_MOST  # a look needs a session too


def change(connection: Connection, amount: int) -> None:
    connection.exec_driver_sql(f"update account set balance = balance + {amount} where id = 1")


@VOTERS
def test_a_lane_that_needs_what_the_main_work_holds_is_refused(opened: OpenBank, kind: str) -> None:
    bank = opened(kind)
    (name,) = bank.engines
    with bank.producer.coordinated(name) as tx:
        with tx.on(name) as connection:
            change(connection, -10)
        with refused(f"lane '{name}' would wait for ever.*the main work in '{name}'"), tx.lane(name) as connection:
            change(connection, 1)
        tx.lane(name).roll_back()
        tx.send(TRANSFERS, b"without the lane")
    assert (bank.balances(), bank.told()) == ({name: START - 10}, ["without the lane"])


@VOTERS
def test_the_main_work_that_needs_what_an_open_unit_holds_is_refused(opened: OpenBank, kind: str) -> None:
    bank = opened(kind)
    (name,) = bank.engines
    with refused(f"the main work in '{name}' would wait for ever.*lane '{name}'"):
        with bank.producer.coordinated(name) as tx, tx.lane(name) as connection:
            change(connection, 1)
            with tx.on(name) as main:
                change(main, -10)
    assert (bank.balances(), tx.decision) == ({name: START}, Decision.ROLLBACK)
    assert bank.prepared() == []


@VOTERS
def test_a_lane_is_refused_as_often_as_it_needs_what_the_main_work_holds(opened: OpenBank, kind: str) -> None:
    bank = opened(kind)
    (name,) = bank.engines
    with bank.producer.coordinated(name) as tx:
        with tx.on(name) as connection:
            change(connection, -10)
        for _ in range(2):
            with refused("would wait for ever"), tx.lane(name) as connection:
                change(connection, 1)
            tx.lane(name).roll_back()
    assert bank.balances() == {name: START - 10}


@VOTERS
def test_whoever_waits_for_a_stranger_waits(opened: OpenBank, kind: str) -> None:
    bank = opened(kind)
    ((name, engine),) = bank.engines.items()
    with engine.connect() as stranger, bank.producer.coordinated(name) as tx:
        with tx.on(name) as connection:
            connection.exec_driver_sql("insert into account values (2, 7)")
        change(stranger, 5)
        freed = threading.Timer(2.5, stranger.commit)
        freed.start()
        with tx.lane(name) as connection:
            change(connection, 1)
        freed.join()
    assert bank.balances() == {name: START + 6}


def test_a_lane_that_waits_behind_a_stranger_who_waits_for_the_main_work_is_refused(opened: OpenBank) -> None:
    bank = opened("postgresql")
    ((name, engine),) = bank.engines.items()
    with bank.producer.coordinated(name) as tx:
        with tx.on(name) as connection:
            change(connection, -10)
        other = threading.Thread(target=stranger_changes, args=(engine,))
        other.start()
        with refused("would wait for ever"), tx.lane(name) as unit:
            wait_until_somebody_waits(unit)
            change(unit, 1)
        tx.lane(name).roll_back()
    other.join(30)
    assert bank.balances() == {name: START - 3}


def stranger_changes(engine: Engine) -> None:
    with engine.begin() as connection:
        change(connection, 7)


def wait_until_somebody_waits(connection: Connection) -> None:
    question = "select count(*) from pg_locks where not granted and pid <> pg_backend_pid()"
    until = time.monotonic() + 20
    while not connection.exec_driver_sql(question).scalar():
        assert time.monotonic() < until, "nobody came to wait"
        time.sleep(0.02)


def test_two_names_of_one_database_are_told_from_two_databases(opened: OpenBank) -> None:
    bank = opened("postgresql")
    ((name, engine),) = bank.engines.items()
    again = create_engine(engine.url)
    bank.broker.register("again", again)
    with refused("the main work in 'again' would wait for ever.*names of one database"):
        with bank.producer.coordinated(name, "again") as tx:
            for each in (name, "again"):
                with tx.on(each) as connection:
                    change(connection, 1)
    assert bank.balances() == {name: START}
    again.dispose()


def test_an_error_that_is_kept_till_the_end_rolls_back_and_says_why(opened: OpenBank) -> None:
    bank = opened("postgresql")
    (name,) = bank.engines
    with pytest.raises(Exception, match="cancel") as told, bank.producer.coordinated(name) as tx:
        with tx.on(name) as connection:
            change(connection, -10)
        unit = tx.lane(name).__enter__()
        change(unit, 1)
    assert any("would wait for ever" in note for note in told.value.__notes__)
    assert bank.balances() == {name: START}


def test_a_second_writer_in_a_file_is_refused_before_it_begins(opened: OpenBank) -> None:
    bank = opened("sqlite")
    (name,) = bank.engines
    began = time.monotonic()
    with bank.producer.coordinated(name) as tx:
        with tx.lane(name) as connection:
            change(connection, 1)
        with pytest.raises(OwnLock, match=r"the main work.*lane"), tx.on(name):
            pass
        tx.lane(name).commit()
        with tx.on(name) as connection:
            change(connection, -10)
        with pytest.raises(OwnLock, match=r"lane.*the main work"), tx.lane(name):
            pass
    assert time.monotonic() - began < AT_MOST
    assert bank.balances() == {name: START - 9}


def test_what_waits_is_told_apart_from_what_fails(opened: OpenBank) -> None:
    bank = opened("postgresql")
    (name,) = bank.engines
    with bank.producer.coordinated(name) as tx:
        with tx.on(name) as connection:
            change(connection, -10)
        with pytest.raises(TransactionError, match="mine"), tx.lane(name):
            raise TransactionError("mine")
        tx.lane(name).roll_back()
    assert bank.balances() == {name: START - 10}
