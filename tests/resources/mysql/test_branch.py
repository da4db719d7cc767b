"""How a branch in MariaDB begins, votes and ends, where the contract can't look."""

from collections.abc import Callable
from typing import Any

import pymysql
import pytest
from sqlalchemy import Engine, create_engine, event, inspect

from tests.resources.conftest import MakeEngine
from tests.resources.maria_shelf import BACKEND, MariaShelf
from txsaga.core.decision import Decision
from txsaga.errors import (
    ConfigError,
    DuplicateBranch,
    EvidenceMissing,
    ResourceManagerFailed,
    RetryLater,
    StoreUnavailable,
)
from txsaga.evidence.database import SqlEvidence
from txsaga.evidence.location import create
from txsaga.flows.branch import Finish, Vote
from txsaga.resources.mysql import MysqlParticipant
from txsaga.testing.participant_contract import begun, new_branch, patiently, voted

pytestmark = pytest.mark.mariadb

COMMIT, ROLLBACK = Decision.COMMIT, Decision.ROLLBACK


@pytest.mark.req("WM-46")
def test_nobody_else_finishes_a_branch_while_the_session_that_voted_lives(
    participant: MysqlParticipant, shelf: MariaShelf, make_engine: MakeEngine, url: str
) -> None:
    branch, another = new_branch(), MysqlParticipant(make_engine(url), name="shelf")
    enlisted = voted(participant, shelf, branch)
    with pytest.raises(RetryLater, match="still holds it"):
        another.finish(branch, COMMIT)
    enlisted.leave()
    assert patiently(lambda: another.finish(branch, COMMIT)) is Finish.DONE


@pytest.mark.req("WM-46")
def test_a_server_that_falls_silent_at_the_vote_leaves_it_to_recovery(
    url: str, shelf: MariaShelf, make_engine: MakeEngine
) -> None:
    branch, hasty = new_branch(), MysqlParticipant(make_engine(url), name="shelf", patience=0.2)
    enlisted = begun(hasty, shelf, branch)
    with shelf.silence():
        with pytest.raises(ResourceManagerFailed, match="no answer"):
            enlisted.prepare()()
        enlisted.leave()  # it is closed when the answer is there
    recovering = MysqlParticipant(make_engine(url), name="shelf")

    def roll_back_what_is_listed() -> None:
        if branch not in recovering.prepared(branch.store):
            raise RetryLater("it has not voted yet")
        assert recovering.finish(branch, ROLLBACK) is Finish.DONE

    patiently(roll_back_what_is_listed)
    assert shelf.items() == set()


@pytest.mark.req("WM-46")
def test_a_rollback_behind_a_vote_that_nobody_waited_for_is_recoverys(engine: Engine, shelf: MariaShelf) -> None:
    branch, hasty = new_branch(), MysqlParticipant(engine, name="shelf", patience=0.2)
    enlisted = hasty.enlist(branch)
    shelf.put(enlisted.handle, 1)
    with shelf.silence():
        with pytest.raises(ResourceManagerFailed, match="no answer"):
            enlisted.prepare()()
        with pytest.raises(ResourceManagerFailed, match="recovery finds out"):  # its line was broken off
            enlisted.finish(ROLLBACK)()
        enlisted.leave()

    def wait_for_the_session() -> None:
        if engine.pool.checkedout():  # type: ignore[attr-defined]  # only pools with a queue count
            raise RetryLater("it is still at work")

    patiently(wait_for_the_session)

    def roll_back_what_is_listed() -> None:
        if branch not in hasty.prepared(branch.store):
            raise RetryLater("the server has not done it yet")
        assert hasty.finish(branch, ROLLBACK) is Finish.DONE

    patiently(roll_back_what_is_listed)
    assert not hasty.prepared(branch.store)
    assert shelf.items() == set()


@pytest.mark.rule("R9")
def test_what_takes_the_name_of_a_committed_branch_is_not_believed(
    participant: MysqlParticipant, shelf: MariaShelf
) -> None:
    branch = new_branch()
    enlisted = voted(participant, shelf, branch)
    enlisted.finish(COMMIT)()
    enlisted.leave()
    with shelf.engine.connect() as connection:
        for word in ("START", "END", "PREPARE"):
            connection.exec_driver_sql(f"XA {word} {shelf.xid(branch)}")
            if word == "START":
                shelf.put(connection, 2)
        connection.invalidate()
    assert list(participant.prepared(branch.store)) == [branch]
    assert patiently(lambda: participant.finish(branch, COMMIT)) is Finish.DONE
    assert not participant.prepared(branch.store)
    assert shelf.items() == {1}


@pytest.mark.req("WM-46")
@pytest.mark.rule("R9")
def test_a_branch_can_not_begin_twice(participant: MysqlParticipant, shelf: MariaShelf) -> None:
    branch = new_branch()
    enlisted = begun(participant, shelf, branch)
    with pytest.raises(DuplicateBranch, match="exists already"):
        participant.enlist(branch)
    enlisted.prepare()()
    enlisted.finish(COMMIT)()
    enlisted.leave()
    with pytest.raises(DuplicateBranch, match="evidence"):
        participant.enlist(branch)
    assert shelf.items() == {1}


@pytest.mark.rule("R10")
def test_a_branch_of_another_database_of_the_server_is_left_alone(
    participant: MysqlParticipant, shelf: MariaShelf, maria_databases: Callable[[], str], make_engine: MakeEngine
) -> None:
    branch, neighbour = new_branch(), MysqlParticipant(make_engine(maria_databases()), name="beside")
    voted(participant, shelf, branch).leave()
    neighbour.finish(branch, COMMIT)
    neighbour.finish(branch, ROLLBACK)
    assert list(participant.prepared(branch.store)) == [branch]
    assert not neighbour.prepared(branch.store)


@pytest.mark.rule("R10")
def test_a_database_that_is_not_the_recorded_one_is_not_believed(
    engine: Engine, maria_databases: Callable[[], str], make_engine: MakeEngine
) -> None:
    recorded, branch, elsewhere = create(engine), new_branch(), make_engine(maria_databases())
    create(elsewhere)
    wrong = MysqlParticipant(elsewhere, name="billing", database=recorded)
    for call in (
        lambda: wrong.finish(branch, COMMIT),
        lambda: wrong.prepared(branch.store),
        lambda: wrong.enlist(branch),
    ):
        with pytest.raises(EvidenceMissing, match="'billing' points to another database"):
            call()


def test_a_session_is_used_again_after_its_branch_and_closed_when_it_leaves_one_behind(
    participant: MysqlParticipant, shelf: MariaShelf
) -> None:
    sessions, branch = [], new_branch()
    for each in (new_branch(), branch, new_branch()):
        enlisted = participant.enlist(each)
        sessions.append(enlisted.handle.scalar(BACKEND))
        enlisted.prepare()()
        if each != branch:
            enlisted.finish(COMMIT)()
        enlisted.leave()
    assert sessions[0] == sessions[1] != sessions[2]


def test_a_branch_is_seven_round_trips(
    engine: Engine, participant: MysqlParticipant, shelf: MariaShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    enlisted = participant.enlist(new_branch())  # the pool has a session then, and the tables are known
    enlisted.finish(ROLLBACK)()
    enlisted.leave()
    sent: list[str] = []
    driver: Any = pymysql.Connection
    execute = driver._execute_command

    def noted(session: object, command: int, sql: str | bytes) -> None:
        sent.append(" ".join((sql if isinstance(sql, str) else sql.decode()).split()[:2]))
        execute(session, command, sql)

    monkeypatch.setattr(driver, "_execute_command", noted)
    enlisted = participant.enlist(new_branch())
    shelf.put(enlisted.handle, 1)
    enlisted.prepare()()
    enlisted.finish(COMMIT)()
    enlisted.leave()
    monkeypatch.undo()
    assert sent == ["XA START", "INSERT INTO", "insert into", "XA END", "XA PREPARE", "XA COMMIT", "ROLLBACK"]


def test_a_session_that_the_pool_kept_too_long_is_replaced_before_the_branch_begins(
    participant: MysqlParticipant, shelf: MariaShelf
) -> None:
    first = participant.enlist(new_branch())
    backend = first.handle.scalar(BACKEND)
    first.finish(ROLLBACK)()
    first.leave()
    shelf.end_session(backend)
    enlisted = voted(participant, shelf, new_branch())
    enlisted.finish(COMMIT)()
    enlisted.leave()
    assert shelf.items() == {1}


@pytest.mark.parametrize("level", ["AUTOCOMMIT", "READ COMMITTED"])
def test_any_isolation_of_the_users_engine_will_do(
    url: str, shelf: MariaShelf, make_engine: MakeEngine, level: str
) -> None:
    participant = MysqlParticipant(make_engine(url, isolation_level=level), name="shelf")
    enlisted = voted(participant, shelf, new_branch())
    assert shelf.items() == set()
    assert enlisted.finish(COMMIT)() is Finish.DONE
    enlisted.leave()
    assert shelf.items() == {1}


def test_a_transaction_that_somebody_left_open_on_the_session_ends_first(
    engine: Engine, participant: MysqlParticipant, shelf: MariaShelf
) -> None:
    assert participant.database  # the tables are there

    @event.listens_for(engine, "checkout")
    def look(connection: pymysql.Connection, *_: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute("select count(*) from item")

    enlisted = voted(participant, shelf, new_branch())
    assert enlisted.finish(COMMIT)() is Finish.DONE
    enlisted.leave()
    assert shelf.items() == {1}


def test_savepoints_inside_a_branch_are_the_users_own(participant: MysqlParticipant, shelf: MariaShelf) -> None:
    enlisted = participant.enlist(new_branch())
    shelf.put(enlisted.handle, 1)
    nested = enlisted.handle.begin_nested()
    shelf.put(enlisted.handle, 2)
    nested.rollback()
    assert enlisted.prepare()() is Vote.PREPARED
    assert enlisted.finish(COMMIT)() is Finish.DONE
    enlisted.leave()
    assert shelf.items() == {1}


def test_the_row_of_a_branch_says_nothing_about_local_work(participant: MysqlParticipant, shelf: MariaShelf) -> None:
    branch, evidence = new_branch(), SqlEvidence(shelf.engine, name="shelf")
    enlisted = voted(participant, shelf, branch)
    enlisted.finish(COMMIT)()
    enlisted.leave()
    assert shelf.kept(branch)
    assert evidence.read(branch.transaction) is None


@pytest.mark.req("IBM-57")
def test_a_server_that_forgets_its_votes_in_a_crash_is_refused(
    participant: MysqlParticipant, shelf: MariaShelf
) -> None:
    shelf.outside("set global innodb_flush_log_at_trx_commit = 2")
    try:
        with pytest.raises(ConfigError, match="set innodb_flush_log_at_trx_commit = 1"):
            participant.probe()
    finally:
        shelf.outside("set global innodb_flush_log_at_trx_commit = 1")


@pytest.mark.req("IBM-13")
def test_a_read_only_server_is_refused(participant: MysqlParticipant, shelf: MariaShelf) -> None:
    participant.probe()
    shelf.outside("set global read_only = 1")
    try:
        with pytest.raises(ConfigError, match="read only or a replica"):
            participant.probe()
    finally:
        shelf.outside("set global read_only = 0")


def test_probing_writes_nothing(engine: Engine, participant: MysqlParticipant) -> None:
    participant.probe()
    assert not inspect(engine).get_table_names()
    with pytest.raises(EvidenceMissing, match="txsaga barrier ddl mysql"):
        MysqlParticipant(engine, name="billing", create=False).probe()


def test_a_server_that_is_away_is_unavailable(make_engine: MakeEngine) -> None:
    away = MysqlParticipant(make_engine("mysql+pymysql://nobody@127.0.0.1:1/nothing"), name="shelf")
    with pytest.raises(StoreUnavailable, match="'shelf'"):
        away.enlist(new_branch())


@pytest.mark.req("IBM-13", "IBM-57")
def test_a_driver_that_nobody_has_tried_is_refused_by_name() -> None:
    engine = create_engine("mysql+mysqldb://", module=pymysql)
    with pytest.raises(ConfigError, match=r"'books' can't vote through mysqldb; .*mysql\+pymysql"):
        MysqlParticipant(engine, name="books")


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
def test_a_session_that_is_cut_behind_the_vote_does_not_stop_the_decision(
    participant: MysqlParticipant, shelf: MariaShelf, decision: Decision
) -> None:
    enlisted = participant.enlist(branch := new_branch())
    shelf.put(enlisted.handle, 1)
    backend = enlisted.handle.scalar(BACKEND)
    assert enlisted.prepare()() is Vote.PREPARED
    shelf.end_session(backend)
    assert enlisted.finish(decision)() is Finish.DONE
    enlisted.leave()
    assert shelf.items() == ({1} if decision is COMMIT else set())
    assert branch not in participant.prepared(branch.store)
