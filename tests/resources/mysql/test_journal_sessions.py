"""The sessions of journals in MariaDB: stale, lost, cut, silent, and clean when they come back."""

from __future__ import annotations

from typing import Any

import pytest
from pymysql.constants import CLIENT
from sqlalchemy import event, text

from tests.resources.conftest import MakeEngine
from tests.resources.maria_shelf import MariaShelf
from tests.resources.mysql.noting import COMMIT, PUT, ROLLBACK, enlisted
from txsaga.errors import (
    CommunicationFailed,
    IntegrityViolated,
    ResourceManagerFailed,
    StoreUnavailable,
)
from txsaga.flows.branch import Finish, Vote
from txsaga.resources.mysql import MysqlParticipant
from txsaga.testing.participant_contract import new_branch, patiently

pytestmark = pytest.mark.mariadb


def test_an_engine_that_was_opened_for_several_statements_keeps_that(
    url: str, shelf: MariaShelf, make_engine: MakeEngine
) -> None:
    engine = make_engine(url, pool_size=1, connect_args={"client_flag": CLIENT.MULTI_STATEMENTS})
    branched = enlisted(MysqlParticipant(engine, name="shelf"), new_branch(), PUT, id=4)
    assert branched.prepare()() is Vote.PREPARED
    branched.finish(COMMIT)()
    branched.leave()
    assert shelf.items() == {4}
    with engine.connect() as connection:
        connection.exec_driver_sql("select 1; select 2").close()


@pytest.mark.req("IBM-50")
def test_a_session_that_the_pool_kept_too_long_is_replaced(
    url: str, shelf: MariaShelf, make_engine: MakeEngine
) -> None:
    engine = make_engine(url, pool_size=2)
    participant = MysqlParticipant(engine, name="shelf")
    assert participant.database
    with engine.connect() as one, engine.connect() as two:
        stale = [each.scalar(text("select connection_id()")) for each in (one, two)]
    for backend in stale:
        shelf.end_session(backend)
    branched = enlisted(participant, new_branch(), PUT, id=4)
    assert branched.prepare()() is Vote.PREPARED
    branched.finish(COMMIT)()
    branched.leave()
    assert shelf.items() == {4}


@pytest.mark.req("IBM-50", "WM-44")
def test_a_session_that_ended_before_its_vote_is_a_no(participant: MysqlParticipant, shelf: MariaShelf) -> None:
    branched = enlisted(participant, new_branch(), PUT, id=4)
    shelf.end_session(branched.number)
    with pytest.raises(CommunicationFailed, match="lost before its vote"):
        branched.prepare()()
    assert branched.finish(ROLLBACK)() is Finish.DONE
    branched.leave()
    assert shelf.items() == set()


@pytest.mark.req("WM-46")
def test_a_session_that_ends_while_its_journal_is_done_is_a_no(
    participant: MysqlParticipant, shelf: MariaShelf
) -> None:
    with shelf.engine.begin() as holder:
        holder.exec_driver_sql("insert into item values (4)")
        branched = enlisted(participant, new_branch(), PUT, id=4)
        vote = branched.prepare()
        shelf.end_session(branched.number)
        with pytest.raises(CommunicationFailed, match="lost before its vote"):
            vote()
        assert branched.finish(ROLLBACK)() is Finish.DONE
        branched.leave()
        holder.rollback()
    assert shelf.items() == set()


@pytest.mark.req("WM-46")
def test_a_server_that_falls_silent_at_the_vote_leaves_it_to_recovery(
    url: str, shelf: MariaShelf, make_engine: MakeEngine
) -> None:
    branch, hasty = new_branch(), MysqlParticipant(make_engine(url), name="shelf", patience=0.2)
    assert hasty.database
    branched = enlisted(hasty, branch, PUT, id=4)
    with shelf.silence():
        with pytest.raises(ResourceManagerFailed, match="no answer"):
            branched.prepare()()
        branched.leave()
    recovering = MysqlParticipant(make_engine(url), name="shelf")
    patiently(lambda: recovering.finish(branch, ROLLBACK))
    assert shelf.items() == set()


@pytest.mark.req("WM-46")
def test_one_that_voted_and_lost_its_session_is_finished_from_another(
    participant: MysqlParticipant, shelf: MariaShelf
) -> None:
    branched = enlisted(participant, new_branch(), PUT, id=4)
    branched.prepare()()
    shelf.end_session(branched.number)
    assert branched.finish(COMMIT)() is Finish.DONE
    branched.leave()
    assert shelf.items() == {4}


def test_one_that_voted_and_is_left_stays_prepared(participant: MysqlParticipant, shelf: MariaShelf) -> None:
    branch = new_branch()
    branched = enlisted(participant, branch, PUT, id=4)
    branched.prepare()()
    branched.leave()
    assert patiently(lambda: participant.finish(branch, COMMIT)) is Finish.DONE
    assert shelf.items() == {4}


def test_a_line_that_is_cut_behind_a_no_is_no_fault_of_ours(participant: MysqlParticipant, shelf: MariaShelf) -> None:
    branched = enlisted(participant, new_branch(), "insert into item (id) values (-1)")
    with pytest.raises(IntegrityViolated):
        branched.prepare()()
    branched._session.cut()
    assert patiently(branched.finish(ROLLBACK)) is Finish.DONE
    branched.leave()
    assert shelf.items() == set()


def test_a_database_that_is_away_is_told_as_that(make_engine: MakeEngine, url: str, shelf: MariaShelf) -> None:
    engine = make_engine(url)
    participant = MysqlParticipant(engine, name="shelf")
    assert participant.database
    participant._engine = make_engine(engine.url.set(port=1).render_as_string(hide_password=False))
    with pytest.raises(StoreUnavailable, match="shelf"):
        enlisted(participant, new_branch(), PUT, id=4)


def test_what_a_listener_left_open_is_rolled_back(url: str, shelf: MariaShelf, make_engine: MakeEngine) -> None:
    engine = make_engine(url, pool_size=1)
    event.listen(engine, "checkout", lambda driver, *_: driver.cursor().execute("select count(*) from item"))
    branched = enlisted(MysqlParticipant(engine, name="shelf"), new_branch(), PUT, id=4)
    assert branched.prepare()() is Vote.PREPARED
    branched.finish(COMMIT)()
    branched.leave()
    assert shelf.items() == {4}


def test_a_clear_no_is_one_while_a_timeout_is_handled(participant: MysqlParticipant, shelf: MariaShelf) -> None:
    branched = enlisted(participant, new_branch(), "insert into item (id) values (-1)")
    try:
        raise TimeoutError
    except TimeoutError:
        with pytest.raises(IntegrityViolated):
            branched.prepare()()
        assert branched.finish(ROLLBACK)() is Finish.DONE
    branched.leave()
    assert shelf.items() == set()


def test_one_that_was_lent_and_never_asked_has_nothing_open_when_it_comes_back(
    url: str, make_engine: MakeEngine
) -> None:
    engine = make_engine(url, pool_size=1)
    participant = MysqlParticipant(engine, name="shelf")
    assert participant.database

    def look(driver: Any, *_: object) -> None:
        with driver.cursor() as cursor:
            cursor.execute("select count(*) from txsaga_evidence")

    event.listen(engine, "checkout", look)
    enlisted(participant, new_branch(), PUT, id=4).leave()
    event.remove(engine, "checkout", look)
    pooled = engine.raw_connection()
    cursor = pooled.cursor()
    cursor.execute("select @@in_transaction")
    found = cursor.fetchone()
    pooled.rollback()
    pooled.close()
    assert found == (0,)
