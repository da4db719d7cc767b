"""A lane and the main work that wait for each other are refused, not left waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager

import pytest
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.exc import OperationalError

from tests.flows.coordinated.bank import START, TRANSFERS
from tests.flows.coordinated.conftest import OpenBank
from txsaga.core.decision import Decision
from txsaga.errors import OwnLock, StoreUnavailable, TransactionError
from txsaga.flows.branch import BranchId
from txsaga.flows.self_deadlock import SelfDeadlockDetector
from txsaga.resources.participant import LockWait
from txsaga.resources.sqlite import SqliteBranch, SqliteParticipant
from txsaga.resources.waits import PostgresLockView

pytestmark = [pytest.mark.postgres, pytest.mark.rule("R17")]

AT_MOST = 2.0
VOTERS = pytest.mark.parametrize("kind", ["postgresql", pytest.param("mariadb", marks=pytest.mark.mariadb)])


def refused(match: str) -> AbstractContextManager[object]:
    return pytest.raises(OwnLock, match=match)


@contextmanager
def soon() -> Iterator[None]:
    """Expect an answer within two seconds, and what a busy machine makes of them: others wait 50 s, or for ever."""
    began = time.monotonic()
    try:
        yield
    finally:
        assert time.monotonic() - began < 5 * AT_MOST


def need(connection: Connection) -> None:
    """Change what another session has locked."""
    with soon():
        change(connection, 1)


def change(connection: Connection, amount: int) -> None:
    connection.exec_driver_sql(f"update account set balance = balance + {amount} where id = 1")


@VOTERS
def test_a_lane_that_needs_what_the_main_work_holds_is_refused(opened: OpenBank, kind: str) -> None:
    bank = opened(kind)
    (name,) = bank.engines
    with bank.producer.coordinated(name) as tx:
        with tx.on(name) as connection:
            change(connection, -10)
        for _ in range(2):  # as often as it is tried
            with refused(f"lane '{name}' would wait forever.*the main work in '{name}'"), tx.lane(name) as unit:
                need(unit)
            tx.lane(name).roll_back()
        tx.send(TRANSFERS, b"without the lane")
    assert (bank.balances(), bank.told()) == ({name: START - 10}, ["without the lane"])


@VOTERS
def test_the_main_work_that_needs_what_an_open_unit_holds_is_refused(opened: OpenBank, kind: str) -> None:
    bank = opened(kind)
    (name,) = bank.engines
    with refused(f"the main work in '{name}' would wait forever.*lane '{name}'"):
        with bank.producer.coordinated(name) as tx, tx.lane(name) as connection:
            change(connection, 1)
            with tx.on(name) as main:
                need(main)
    assert (bank.balances(), tx.decision) == ({name: START}, Decision.ROLLBACK)
    assert bank.prepared() == []


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
        with refused("would wait forever"), tx.lane(name) as unit:
            wait_until_somebody_waits(unit)
            need(unit)
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
    with refused("the main work in 'again' would wait forever.*names of one database"):
        with bank.producer.coordinated(name, "again") as tx:
            with tx.on(name) as connection:
                change(connection, 1)
            with tx.on("again") as connection:
                need(connection)
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
    assert any("would wait forever" in note for note in told.value.__notes__)
    assert bank.balances() == {name: START}


def test_a_second_writer_in_a_file_is_refused_before_it_begins(opened: OpenBank) -> None:
    bank = opened("sqlite")
    (name,) = bank.engines
    with bank.producer.coordinated(name) as tx:
        with tx.lane(name) as connection:
            change(connection, 1)
        with soon(), refused("the main work.*lane"), tx.on(name):
            pass
        tx.lane(name).commit()
        with tx.on(name) as connection:
            change(connection, -10)
        with soon(), refused("lane.*the main work"), tx.lane(name):
            pass
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


@VOTERS
def test_a_pool_that_has_no_other_session_does_not_keep_anybody_waiting(opened: OpenBank, kind: str) -> None:
    bank = opened(kind)
    small = create_engine(next(iter(bank.engines.values())).url, pool_size=2, max_overflow=0)
    bank.broker.register("small", small)
    with refused("lane 'small' would wait forever"), bank.producer.coordinated("small") as tx:
        with tx.on("small") as connection:
            change(connection, -10)
        with tx.lane("small") as unit:
            need(unit)
    small.dispose()


def test_a_look_that_fails_is_followed_by_others(opened: OpenBank, monkeypatch: pytest.MonkeyPatch) -> None:
    bank = opened("postgresql")
    (name,) = bank.engines
    real, failures = PostgresLockView.blocked, [StoreUnavailable("no session is to be had")]

    def fails_once(view: PostgresLockView, sessions: Sequence[int], held: Sequence[str]) -> LockWait | None:
        if failures:
            raise failures.pop()
        return real(view, sessions, held)

    monkeypatch.setattr(PostgresLockView, "blocked", fails_once)
    with refused("would wait forever"), bank.producer.coordinated(name) as tx:
        with tx.on(name) as connection:
            change(connection, -10)
        with tx.lane(name) as unit:
            need(unit)
    assert not failures


def test_whoever_gets_a_session_that_its_user_closed_is_not_interrupted(opened: OpenBank) -> None:
    bank = opened("postgresql")
    ((name, engine),) = bank.engines.items()
    with pytest.raises(TransactionError, match="enough"), bank.producer.coordinated(name) as tx:
        with tx.lane(name) as unit:
            change(unit, 1)
        with tx.on(name) as connection:
            connection.close()
        with ThreadPoolExecutor(2) as strangers:
            waiting = [strangers.submit(stranger_changes, engine) for _ in range(2)]
            time.sleep(AT_MOST)
            tx.lane(name).roll_back()
        assert [each.result() for each in waiting] == [None, None]
        raise TransactionError("enough")
    assert bank.balances() == {name: START + 14}


def test_a_refusal_that_was_caught_is_not_told_again(opened: OpenBank) -> None:
    bank = opened("postgresql")
    (name,) = bank.engines
    with pytest.raises(TransactionError, match="mine") as told, bank.producer.coordinated(name) as tx:
        with tx.on(name) as connection:
            change(connection, -10)
        with tx.lane(name) as unit:
            with pytest.raises(OperationalError, match="cancel"), unit.begin_nested():
                need(unit)
            unit.exec_driver_sql("select 1")
            raise TransactionError("mine")
    assert getattr(told.value, "__notes__", []) == []


def test_the_connection_of_the_driver_is_looked_at_too(opened: OpenBank) -> None:
    bank = opened("postgresql")
    (name,) = bank.engines
    with refused("the main work"), bank.producer.coordinated(name) as tx:
        with tx.lane(name) as unit:
            change(unit, 1)
        with tx.on(name, driver=True) as connection, soon():
            connection.execute("update account set balance = 0 where id = 1")


def test_a_lane_whose_commit_waits_for_the_main_work_is_refused(opened: OpenBank) -> None:
    bank = opened("postgresql")
    ((name, engine),) = bank.engines.items()
    with engine.begin() as connection:
        connection.exec_driver_sql("create table seat (id int unique deferrable initially deferred)")
    with bank.producer.coordinated(name) as tx:
        with tx.on(name) as connection:
            connection.exec_driver_sql("insert into seat values (5)")
        with tx.lane(name) as unit:
            unit.exec_driver_sql("insert into seat values (5)")
        with soon(), refused(f"lane '{name}' would wait forever"):
            tx.lane(name).commit()
    with engine.connect() as connection:
        assert connection.exec_driver_sql("select count(*) from seat").scalar() == 1


def test_of_two_threads_that_open_one_file_one_is_refused(opened: OpenBank, monkeypatch: pytest.MonkeyPatch) -> None:
    bank = opened("sqlite")
    (name,) = bank.engines
    real, began = SqliteParticipant.enlist, threading.Event()

    def slow(participant: SqliteParticipant, branch: BranchId) -> SqliteBranch:
        began.set()
        time.sleep(0.5)
        return real(participant, branch)

    monkeypatch.setattr(SqliteParticipant, "enlist", slow)
    with bank.producer.coordinated(name) as tx, ThreadPoolExecutor(1) as other:
        first = other.submit(tx.on(name).__enter__)
        assert began.wait(10)
        with refused("lane.*the main work"), tx.lane(name):
            pass
        first.result(10)
        tx.lane(name).roll_back()


@VOTERS
def test_a_journal_that_needs_what_an_open_unit_holds_is_refused(opened: OpenBank, kind: str) -> None:
    bank = opened(kind)
    (name,) = bank.engines
    with soon(), refused(f"the main work in '{name}' would wait forever.*lane '{name}'; .*settle the lane"):
        with bank.producer.coordinated(name) as tx:
            with tx.lane(name) as connection:
                change(connection, 1)
            tx.journal(name).execute("update account set balance = 0 where id = 1")
    assert (bank.balances(), tx.decision, bank.prepared()) == ({name: START}, Decision.ROLLBACK, [])


def test_who_has_nothing_to_wait_for_is_not_looked_after(opened: OpenBank) -> None:
    bank = opened("postgresql", "postgresql")
    with bank.producer.coordinated(*bank.engines) as tx:
        for name in bank.engines:
            with tx.on(name) as connection:
                change(connection, 1)
        assert looking() == []
        with tx.lane(name):
            assert len(looking()) == 1
        tx.lane(name).roll_back()


def looking() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "txsaga-self-deadlocks"]


def test_who_comes_when_it_is_closed_is_not_looked_after(opened: OpenBank) -> None:
    bank = opened("postgresql", "postgresql")
    _, participant = bank.broker.kernel.participant("postgresql0")
    detector = SelfDeadlockDetector(1)
    detector.close()
    sessions = [participant.enlist(BranchId(f"{'0' * 32}-1-1", number)) for number in (1, 2)]
    for key, session in zip(("one", "two"), sessions, strict=True):
        detector.enter(key, participant, session, unit=False)
    found = looking()
    for session in sessions:
        session.leave()
    assert found == []
