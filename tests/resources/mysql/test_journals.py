"""A journal in MariaDB is executed before its vote: what it does there is checked before the yes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pymysql.constants import CLIENT
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.exc import ProgrammingError

from tests.contracts.samples import start
from tests.resources.conftest import MakeEngine
from tests.resources.maria_shelf import MariaShelf
from tests.scene.patience import eventually
from txsaga.core.decision import Decision
from txsaga.errors import (
    Deadlocked,
    IntegrityViolated,
    OtherReason,
    ProtocolError,
    RowsDiffer,
    StoreUnavailable,
    VotedNo,
)
from txsaga.evidence.location import create
from txsaga.flows.branch import Finish, Vote
from txsaga.flows.journal import Journalled, written
from txsaga.resources.mysql import MysqlBranch, MysqlParticipant
from txsaga.testing.participant_contract import new_branch

pytestmark = pytest.mark.mariadb

COMMIT, ROLLBACK = Decision.COMMIT, Decision.ROLLBACK
PUT = "insert into item (id) values (:id)"
WAITING = "select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT'"
HIDDEN = r"insert into note values ('\''); delete from note; insert into note values ('x') -- '"


def journal(*texts: str, rows: int | None = None, **values: object) -> Sequence[Journalled]:
    return [Journalled(0, at, "shelf", 0, each, written(values), rows) for at, each in enumerate(texts, 1)]


def done(participant: MysqlParticipant, *texts: str, **given: Any) -> MysqlBranch:
    """Open a branch and execute a journal in it."""
    enlisted = participant.enlist(new_branch())
    participant.do(enlisted, journal(*texts, **given))
    return enlisted


def committed(participant: MysqlParticipant, *texts: str, **given: Any) -> None:
    enlisted = done(participant, *texts, **given)
    assert enlisted.prepare()() is Vote.PREPARED
    enlisted.finish(COMMIT)()
    enlisted.leave()


def refused(participant: MysqlParticipant, error: type[Exception], said: str, *texts: str, **given: Any) -> MysqlBranch:
    """Open a branch and execute a journal in it that can't be done; roll it back."""
    enlisted = participant.enlist(new_branch())
    with pytest.raises(error, match=said):
        participant.do(enlisted, journal(*texts, **given))
    with pytest.raises(ProtocolError):
        enlisted.finish(COMMIT)
    assert enlisted.finish(ROLLBACK)() is Finish.DONE
    enlisted.leave()
    return enlisted


def lent_again(engine: Engine) -> None:
    """Find the session that came back to the pool as it was: it takes one statement at a time, and nothing is open."""
    with engine.connect() as connection:
        with pytest.raises(ProgrammingError):
            connection.exec_driver_sql("select 1; select 2")
        connection.rollback()
        assert connection.scalar(text("select @@in_transaction")) == 0


@pytest.fixture
def notes(shelf: MariaShelf) -> MariaShelf:
    """Give a shelf with a table of texts."""
    shelf.outside("create table note (what varchar(99)) engine=InnoDB", "insert into note values ('old')")
    return shelf


def waits_for_a_lock(connection: Connection) -> bool:
    time.sleep(0.2)  # the server renews this view only where nobody read it for 0.1 s
    return bool(connection.exec_driver_sql(WAITING).scalar())


def noted(shelf: MariaShelf) -> list[str]:
    with shelf.engine.connect() as connection:
        return list(connection.scalars(text("select what from note order by 1")))


@pytest.mark.parametrize(
    ("statement", "error", "said"),
    [
        ("insert into item (id) values (-1)", IntegrityViolated, "statement 2 of the journal for 'shelf'"),
        ("insert into item (id) valves (7)", OtherReason, "statement 2 of the journal for 'shelf'"),
        ("insert into nowhere (id) values (7)", OtherReason, "statement 2 of the journal for 'shelf'"),
        ("delete from item where id = 7", RowsDiffer, "changed 0 rows"),
    ],
)
def test_what_can_not_be_done_is_a_no_and_nothing_of_it_stays(
    participant: MysqlParticipant, shelf: MariaShelf, engine: Engine, statement: str, error: type[Exception], said: str
) -> None:
    refused(participant, error, said, "insert into item (id) values (4)", statement)
    assert shelf.items() == set()
    assert participant.prepared(new_branch().store) == []
    lent_again(engine)


@pytest.mark.req("IBM-57")
def test_a_statement_that_hides_others_is_refused(
    participant: MysqlParticipant, notes: MariaShelf, engine: Engine
) -> None:
    refused(participant, OtherReason, "statement 1 of the journal", HIDDEN)
    assert noted(notes) == ["old"]
    lent_again(engine)


@pytest.mark.req("IBM-57")
@pytest.mark.parametrize("hidden", [HIDDEN, r"insert into note values ('\''); insert into nowhere values ('x') -- '"])
def test_it_is_refused_where_the_engine_takes_several_statements_at_once(
    url: str, notes: MariaShelf, make_engine: MakeEngine, hidden: str
) -> None:
    engine = make_engine(url, pool_size=1, connect_args={"client_flag": CLIENT.MULTI_STATEMENTS})
    participant = MysqlParticipant(engine, name="shelf")
    refused(participant, OtherReason, "for 'shelf'", hidden)
    assert noted(notes) == ["old"]
    committed(participant, "insert into note values ('new')")
    assert noted(notes) == ["new", "old"]
    with engine.connect() as connection:
        connection.exec_driver_sql("select 1; select 2").close()


@pytest.mark.req("IBM-57")
@pytest.mark.parametrize("end", ["commit", "rollback", "create table t (i int)", "begin", "set autocommit = 1"])
def test_the_server_lets_nothing_end_the_branch(participant: MysqlParticipant, notes: MariaShelf, end: str) -> None:
    hidden = rf"insert into note values ('\''); {end}; insert into note values ('x') -- '"
    refused(participant, VotedNo, "statement 1 of the journal for 'shelf'", hidden)
    assert noted(notes) == ["old"]


@pytest.mark.parametrize("transaction", [None, "its own"])
def test_alone_it_commits_in_one_phase(
    participant: MysqlParticipant, shelf: MariaShelf, transaction: str | None
) -> None:
    branch = new_branch()
    enlisted = participant.enlist(branch)
    participant.do(enlisted, journal(PUT, id=4))
    enlisted.commit(transaction and branch.transaction)()
    enlisted.leave()
    assert shelf.items() == {4}


@pytest.mark.req("WM-46")
def test_a_session_that_ends_while_its_journal_is_done_leaves_nothing(
    participant: MysqlParticipant, shelf: MariaShelf
) -> None:
    with shelf.engine.begin() as holder:
        holder.exec_driver_sql("insert into item values (4)")
        enlisted = participant.enlist(new_branch())
        doing = start(lambda: participant.do(enlisted, journal(PUT, id=4)))
        eventually(lambda: waits_for_a_lock(holder), "the journal waits")
        shelf.end_session(enlisted.number)
        with pytest.raises(StoreUnavailable, match="'shelf' does not answer"):
            doing.result(20)
        assert enlisted.finish(ROLLBACK)() is Finish.DONE
        enlisted.leave()
        holder.rollback()
    assert shelf.items() == set()


def test_it_has_the_isolation_that_its_engine_gives(url: str, shelf: MariaShelf, make_engine: MakeEngine) -> None:
    engine = make_engine(url).execution_options(isolation_level="READ_UNCOMMITTED")
    participant = MysqlParticipant(engine, name="shelf")
    assert participant.database
    with shelf.engine.connect() as other:
        other.exec_driver_sql("insert into item values (4)")  # not committed
        committed(participant, "insert into item (id) select id + 1 from (select id from item where id = 4) found")
        other.rollback()
    assert shelf.items() == {5}


VALUES = ["it's", 'a "b"', r"back\slash", "100 %", "%s %(what)s", ":what", "ä€😀", "a;b -- c", "\n\r\x1a"]


@pytest.mark.parametrize("mode", ["", "set session sql_mode = 'NO_BACKSLASH_ESCAPES'"])
def test_values_arrive_as_they_are(url: str, shelf: MariaShelf, make_engine: MakeEngine, mode: str) -> None:
    shelf.outside(
        "create table kept (what varchar(99) character set utf8mb4, raw blob, n decimal(9, 3), d datetime(6))"
    )
    engine = make_engine(url)
    if mode:
        event.listen(engine, "connect", lambda driver, _: driver.cursor().execute(mode))
    participant = MysqlParticipant(engine, name="shelf")
    moment = datetime(2026, 2, 3, 4, 5, 6, 789)  # noqa: DTZ001  # as the column keeps it
    for what in VALUES:
        put = "insert into kept values (:what, :raw, :n, :d)"
        given: dict[str, Any] = {"what": what, "raw": what.encode(), "n": Decimal("-1.250"), "d": moment}
        committed(participant, put, **given)
    with shelf.engine.connect() as connection:
        rows = connection.execute(text("select what, raw, n, d from kept")).all()
    assert [tuple(row) for row in rows] == [(each, each.encode(), Decimal("-1.250"), moment) for each in VALUES]
    assert date(2026, 2, 3) == moment.date()


def test_a_value_that_is_missing_is_a_no(participant: MysqlParticipant, engine: Engine) -> None:
    refused(participant, OtherReason, "statement 1 of the journal", PUT)
    lent_again(engine)


def test_it_waits_for_a_lock_and_a_deadlock_is_a_no(
    participant: MysqlParticipant, shelf: MariaShelf, engine: Engine
) -> None:
    create(engine, "shelf")
    statements = journal("delete from item where id = -2", "delete from item where id = -1")
    enlisted = participant.enlist(new_branch())
    with shelf.engine.connect() as other:
        other.exec_driver_sql("insert into item select seq from seq_1000_to_1100")
        other.exec_driver_sql("select id from item where id = -1 for update")
        doing = start(lambda: participant.do(enlisted, statements))
        eventually(lambda: waits_for_a_lock(other), "the journal waits")
        crossing = start(lambda: other.exec_driver_sql("select id from item where id = -2 for update"))
        with pytest.raises(Deadlocked):
            doing.result(20)
        crossing.result(20)
        other.rollback()
    assert enlisted.finish(ROLLBACK)() is Finish.DONE
    enlisted.leave()
    assert shelf.items() == set()
    lent_again(engine)
