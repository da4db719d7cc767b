"""When a branch in MariaDB votes no, and what it says then."""

from collections.abc import Callable

import pymysql
import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from tests.resources.maria_shelf import BACKEND, MariaShelf
from txsaga.core.decision import Decision
from txsaga.errors import CommunicationFailed, RolledBack
from txsaga.flows.branch import Finish
from txsaga.resources.mysql import MysqlParticipant
from txsaga.testing.participant_contract import new_branch

pytestmark = pytest.mark.mariadb

COMMIT, ROLLBACK = Decision.COMMIT, Decision.ROLLBACK


@pytest.mark.req("IBM-57", "WM-44")
@pytest.mark.parametrize("end", [Connection.commit, Connection.rollback])
def test_a_step_that_tries_to_end_its_transaction_itself_is_a_no(
    participant: MysqlParticipant, shelf: MariaShelf, end: Callable[[Connection], None]
) -> None:
    branch = new_branch()
    enlisted = participant.enlist(branch)
    shelf.put(enlisted.handle, 1)
    with pytest.raises(DBAPIError, match="XAER_RMFAIL"):
        end(enlisted.handle)
    with pytest.raises(RolledBack, match="leave COMMIT and ROLLBACK to the coordinator"):
        enlisted.prepare()
    assert enlisted.finish(ROLLBACK)() is Finish.DONE
    enlisted.leave()
    assert shelf.items() == set()
    assert not shelf.kept(branch)


@pytest.mark.req("IBM-57", "WM-45")
def test_a_step_that_commits_its_branch_past_us_is_a_no_and_is_found_out(
    participant: MysqlParticipant, shelf: MariaShelf
) -> None:
    branch = new_branch()
    enlisted = participant.enlist(branch)
    shelf.put(enlisted.handle, 1)
    xid = shelf.xid(branch)
    for statement in (f"XA END {xid}", f"XA COMMIT {xid} ONE PHASE"):
        enlisted.handle.exec_driver_sql(statement)
    with pytest.raises(RolledBack):
        enlisted.prepare()()
    assert enlisted.finish(ROLLBACK)() is Finish.COMMITTED
    enlisted.leave()
    assert shelf.items() == {1}


@pytest.mark.req("IBM-50")
def test_a_driver_that_connects_again_inside_the_branch_is_a_no(
    participant: MysqlParticipant, shelf: MariaShelf
) -> None:
    enlisted = participant.enlist(new_branch())
    shelf.put(enlisted.handle, 1)
    driver = enlisted.handle.connection.driver_connection
    assert isinstance(driver, pymysql.Connection)
    driver.close()
    driver.connect()
    shelf.put(enlisted.handle, 2)
    with pytest.raises(CommunicationFailed):
        enlisted.prepare()
    assert enlisted.finish(ROLLBACK)() is Finish.DONE
    enlisted.leave()
    assert shelf.items() == set()


@pytest.mark.req("IBM-50")
def test_a_session_that_is_opened_again_inside_the_branch_is_a_no(
    participant: MysqlParticipant, shelf: MariaShelf
) -> None:
    enlisted = participant.enlist(new_branch())
    shelf.put(enlisted.handle, 1)
    shelf.end_session(enlisted.handle.scalar(BACKEND))
    with pytest.raises(DBAPIError):
        shelf.put(enlisted.handle, 2)
    enlisted.handle.rollback()
    shelf.put(enlisted.handle, 3)  # SQLAlchemy has opened another session for it
    with pytest.raises(CommunicationFailed):
        enlisted.prepare()
    assert enlisted.finish(ROLLBACK)() is Finish.DONE
    enlisted.leave()
    assert shelf.items() == set()


@pytest.mark.req("IBM-50", "WM-44")
def test_a_session_that_the_server_ended_is_a_no(participant: MysqlParticipant, shelf: MariaShelf) -> None:
    branch = new_branch()
    enlisted = participant.enlist(branch)
    shelf.put(enlisted.handle, 1)
    shelf.end_session(enlisted.handle.scalar(BACKEND))
    with pytest.raises(CommunicationFailed):
        enlisted.prepare()()
    assert enlisted.finish(ROLLBACK)() is Finish.DONE
    enlisted.leave()
    assert participant.finish(branch, ROLLBACK) is Finish.DONE
    assert shelf.items() == set()
