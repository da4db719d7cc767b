"""When a branch in PostgreSQL votes no, and what it says then."""

from collections.abc import Callable

import psycopg
import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from tests.resources.conftest import MakeEngine
from tests.resources.postgres_shelf import BACKEND, PostgresShelf
from txsaga.core.decision import Decision
from txsaga.errors import (
    CommunicationFailed,
    Deadlocked,
    DuplicateBranch,
    IntegrityViolated,
    OtherReason,
    RolledBack,
    TimedOut,
    TransactionError,
)
from txsaga.evidence import libpq
from txsaga.flows.branch import Finish, Vote
from txsaga.resources.postgres import PostgresParticipant
from txsaga.resources.postgres_branch import refuse_no
from txsaga.testing.participant_contract import begun, new_branch, voted

pytestmark = pytest.mark.postgres

COMMIT, ROLLBACK = Decision.COMMIT, Decision.ROLLBACK


def commit_and_go_on(handle: Connection) -> None:
    with pytest.raises(TransactionError, match="refused"):
        handle.commit()


def commit_past_sqlalchemy(handle: Connection) -> None:
    handle.exec_driver_sql("commit")


def commit_and_write_on(handle: Connection) -> None:
    handle.exec_driver_sql("commit")
    handle.exec_driver_sql("insert into item (id) values (2)")


def commit_and_read_on(handle: Connection) -> None:
    handle.exec_driver_sql("commit")
    handle.exec_driver_sql("select 1")


def roll_back_and_write_on(handle: Connection) -> None:
    handle.rollback()
    handle.exec_driver_sql("insert into item (id) values (2)")


ENDINGS = [
    commit_and_go_on,
    Connection.rollback,
    commit_past_sqlalchemy,
    commit_and_write_on,
    commit_and_read_on,
    roll_back_and_write_on,
]


@pytest.mark.req("IBM-57", "WM-44")
@pytest.mark.parametrize("end", ENDINGS, ids=lambda end: end.__name__)
def test_a_transaction_that_the_step_ended_itself_is_a_no(
    participant: PostgresParticipant, shelf: PostgresShelf, end: Callable[[Connection], None]
) -> None:
    branch = new_branch()
    enlisted = begun(participant, shelf, branch)
    end(enlisted.handle)  # type: ignore[arg-type]  # the port promises no connection
    with pytest.raises(RolledBack, match="leave COMMIT and ROLLBACK to the coordinator"):
        enlisted.prepare()()
    enlisted.finish(ROLLBACK)()
    enlisted.leave()
    assert 2 not in shelf.items()
    assert not participant.prepared(branch.store)
    assert not shelf.kept(branch)


@pytest.mark.req("IBM-50")
def test_a_session_that_is_opened_again_inside_the_branch_is_a_no(
    participant: PostgresParticipant, shelf: PostgresShelf
) -> None:
    branch = new_branch()
    enlisted = participant.enlist(branch)
    handle = enlisted.handle
    shelf.put(handle, 1)
    shelf.end_session(handle.scalar(BACKEND))
    with pytest.raises(DBAPIError):
        shelf.put(handle, 2)
    handle.rollback()
    shelf.put(handle, 3)  # SQLAlchemy has opened another session for it
    with pytest.raises(CommunicationFailed):
        enlisted.prepare()
    assert enlisted.finish(ROLLBACK)() is Finish.DONE
    enlisted.leave()
    assert shelf.items() == set()


@pytest.mark.req("IBM-50")
def test_a_session_that_the_server_ended_is_a_no_before_anything_is_sent(
    participant: PostgresParticipant, shelf: PostgresShelf
) -> None:
    enlisted = participant.enlist(new_branch())
    shelf.put(enlisted.handle, 1)
    shelf.end_session(enlisted.handle.scalar(BACKEND))
    with pytest.raises(CommunicationFailed):
        enlisted.prepare()
    enlisted.leave()
    assert shelf.items() == set()


@pytest.mark.req("WM-44")
def test_a_constraint_that_waits_for_the_end_is_a_no(participant: PostgresParticipant, shelf: PostgresShelf) -> None:
    enlisted = begun(participant, shelf, new_branch())
    shelf.put(enlisted.handle, 1)
    with pytest.raises(IntegrityViolated, match="duplicate key"):
        enlisted.prepare()()
    assert enlisted.finish(ROLLBACK)() is Finish.DONE
    enlisted.leave()


@pytest.mark.req("WM-44")
def test_work_that_can_not_be_serialized_is_a_no(url: str, shelf: PostgresShelf, make_engine: MakeEngine) -> None:
    participant = PostgresParticipant(make_engine(url, isolation_level="SERIALIZABLE"), name="shelf")
    first, second = participant.enlist(new_branch()), participant.enlist(new_branch())
    for item, enlisted in enumerate((first, second)):
        assert enlisted.handle.scalar(text("select count(*) from item")) == 0
        shelf.put(enlisted.handle, item)
    assert first.prepare()() is Vote.PREPARED
    with pytest.raises(Deadlocked, match="serialize"):
        second.prepare()()
    for enlisted in (first, second):
        enlisted.finish(ROLLBACK)()
        enlisted.leave()


@pytest.mark.req("WM-44")
def test_what_can_not_be_prepared_is_a_no_for_another_reason(
    participant: PostgresParticipant, shelf: PostgresShelf
) -> None:
    enlisted = begun(participant, shelf, new_branch())
    enlisted.handle.exec_driver_sql("notify somebody")  # type: ignore[attr-defined]  # the port promises no connection
    with pytest.raises(OtherReason, match="NOTIFY"):
        enlisted.prepare()()
    enlisted.leave()
    assert shelf.items() == set()


@pytest.mark.rule("R9")
def test_the_answer_of_a_failed_transaction_to_prepare_is_a_no(engine: Engine, shelf: PostgresShelf) -> None:
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert isinstance(driver, psycopg.Connection)
        for statements in ("begin; select 1 / 0", "prepare transaction 'failed'"):
            libpq.send(driver.pgconn, statements)
            answers = libpq.receive(driver.pgconn, 5)
    with pytest.raises(RolledBack, match="ROLLBACK"):
        refuse_no(answers[-1], new_branch())
    assert shelf.listed() == set()


@pytest.mark.req("WM-46")
@pytest.mark.rule("R9")
def test_a_branch_can_not_be_prepared_twice(url: str, shelf: PostgresShelf, make_engine: MakeEngine) -> None:
    participant, branch = PostgresParticipant(make_engine(url), name="shelf"), new_branch()
    zombie = begun(participant, shelf, branch, 1)
    voted(participant, shelf, branch, 2).leave()
    assert participant.finish(branch, COMMIT) is Finish.DONE
    with pytest.raises(DuplicateBranch, match="evidence"):
        zombie.prepare()()
    zombie.leave()
    assert shelf.items() == {2}


@pytest.mark.req("WM-44")
def test_a_name_that_is_prepared_elsewhere_is_not_waited_for_long(
    url: str, shelf: PostgresShelf, make_engine: MakeEngine
) -> None:
    participant, branch = PostgresParticipant(make_engine(url), name="shelf"), new_branch()
    voted(participant, shelf, branch, 1).leave()
    second = begun(participant, shelf, branch, 2)
    with pytest.raises(TimedOut):
        second.prepare()()
    second.leave()
    assert participant.finish(branch, ROLLBACK) is Finish.DONE
