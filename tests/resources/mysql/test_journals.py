"""A journal in MariaDB is executed with its vote: what it does there is checked before the yes."""

from __future__ import annotations

import time
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pymysql.constants import CLIENT
from sqlalchemy import Connection, Engine, event, text

from tests.contracts.samples import start
from tests.resources.conftest import MakeEngine
from tests.resources.maria_shelf import MariaShelf
from tests.resources.mysql.noting import COMMIT, PUT, ROLLBACK, enlisted, journal, lent_again
from tests.scene.patience import eventually
from txsaga.errors import (
    Deadlocked,
    EvidenceMissing,
    IntegrityViolated,
    OtherReason,
    ProtocolError,
    RowsDiffer,
    VotedNo,
)
from txsaga.evidence.location import create
from txsaga.flows.branch import Finish, Vote
from txsaga.resources.mysql import MysqlParticipant
from txsaga.resources.participant import LockPatience
from txsaga.testing.participant_contract import new_branch

pytestmark = pytest.mark.mariadb

WAITING = "select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT'"
HIDDEN = r"insert into note values ('\''); delete from note; insert into note values ('x') -- '"


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


def test_a_no_can_not_be_committed(participant: MysqlParticipant, shelf: MariaShelf) -> None:
    branched = enlisted(participant, new_branch(), PUT, "delete from item where id = 7 and :id", id=4)
    with pytest.raises(RowsDiffer):
        branched.prepare()()
    with pytest.raises(ProtocolError):
        branched.finish(COMMIT)
    assert branched.finish(ROLLBACK)() is Finish.DONE
    branched.leave()
    assert shelf.items() == set()


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
    branch = new_branch()
    branched = enlisted(participant, branch, "insert into item (id) values (4)", statement)
    with pytest.raises(error, match=said):
        branched.prepare()()
    assert branched.finish(ROLLBACK)() is Finish.DONE
    branched.leave()
    assert (shelf.items(), shelf.kept(branch), participant.prepared(branch.store)) == (set(), False, [])
    lent_again(engine)


@pytest.mark.req("IBM-57")
def test_a_statement_that_hides_others_is_no_vote(
    participant: MysqlParticipant, notes: MariaShelf, engine: Engine
) -> None:
    branched = enlisted(participant, new_branch(), HIDDEN)
    with pytest.raises(OtherReason, match="statement 1 of the journal"):
        branched.prepare()()
    assert branched.finish(ROLLBACK)() is Finish.DONE
    branched.leave()
    assert noted(notes) == ["old"]
    lent_again(engine)


@pytest.mark.req("IBM-57")
@pytest.mark.parametrize("hidden", [HIDDEN, r"insert into note values ('\''); insert into nowhere values ('x') -- '"])
def test_it_is_no_vote_where_the_engine_takes_several_statements_at_once(
    url: str, notes: MariaShelf, make_engine: MakeEngine, hidden: str
) -> None:
    engine = make_engine(url, pool_size=1, connect_args={"client_flag": CLIENT.MULTI_STATEMENTS})
    branched = enlisted(MysqlParticipant(engine, name="shelf"), new_branch(), hidden)
    with pytest.raises(OtherReason, match="the journal for 'shelf'"):
        branched.prepare()()
    assert branched.finish(ROLLBACK)() is Finish.DONE
    branched.leave()
    assert noted(notes) == ["old"]


@pytest.mark.req("IBM-57")
@pytest.mark.parametrize("end", ["commit", "rollback", "create table t (i int)", "begin", "set autocommit = 1"])
def test_the_server_lets_nothing_end_the_branch(participant: MysqlParticipant, notes: MariaShelf, end: str) -> None:
    hidden = rf"insert into note values ('\''); {end}; insert into note values ('x') -- '"
    branched = enlisted(participant, new_branch(), hidden)
    with pytest.raises(VotedNo):
        branched.prepare()()
    assert branched.finish(ROLLBACK)() is Finish.DONE
    branched.leave()
    assert noted(notes) == ["old"]


def test_one_that_is_never_asked_costs_its_session_nothing(
    participant: MysqlParticipant, shelf: MariaShelf, engine: Engine
) -> None:
    branched = enlisted(participant, new_branch(), PUT, id=4)
    assert branched.finish(ROLLBACK)() is Finish.DONE
    branched.leave()
    assert shelf.items() == set()
    lent_again(engine)


@pytest.mark.parametrize("transaction", [None, "its own"])
def test_alone_it_commits_in_one_phase_and_looks_before(
    participant: MysqlParticipant, shelf: MariaShelf, transaction: str | None
) -> None:
    for item, texts, error in ((4, [PUT], None), (5, [PUT, "delete from item where id = 7 and :id"], RowsDiffer)):
        branch = new_branch()
        branched = enlisted(participant, branch, *texts, id=item)
        if error is None:
            branched.commit(transaction and branch.transaction)()
        else:
            with pytest.raises(error):
                branched.commit(transaction and branch.transaction)()
            assert branched.finish(ROLLBACK)() is Finish.DONE
        branched.leave()
        assert shelf.items() == {4}


def test_it_has_the_isolation_that_its_engine_gives(url: str, shelf: MariaShelf, make_engine: MakeEngine) -> None:
    engine = make_engine(url).execution_options(isolation_level="READ_UNCOMMITTED")
    participant = MysqlParticipant(engine, name="shelf")
    assert participant.database
    with shelf.engine.connect() as other:
        other.exec_driver_sql("insert into item values (4)")  # not committed
        copy = "insert into item (id) select id + 1 from (select id from item where id = 4) found"
        branched = enlisted(participant, new_branch(), copy)
        assert branched.prepare()() is Vote.PREPARED
        branched.finish(COMMIT)()
        branched.leave()
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
        branched = participant.enlist_journal(new_branch(), journal(put, **given), waits=LockPatience.PATIENTLY)
        branched.prepare()()
        branched.finish(COMMIT)()
        branched.leave()
    with shelf.engine.connect() as connection:
        rows = connection.execute(text("select what, raw, n, d from kept")).all()
    assert [tuple(row) for row in rows] == [(each, each.encode(), Decimal("-1.250"), moment) for each in VALUES]
    assert date(2026, 2, 3) == moment.date()


def test_a_value_that_is_missing_is_a_no(participant: MysqlParticipant, engine: Engine) -> None:
    branched = enlisted(participant, new_branch(), PUT)
    with pytest.raises(OtherReason, match="statement 1 of the journal"):
        branched.prepare()()
    assert branched.finish(ROLLBACK)() is Finish.DONE
    branched.leave()
    lent_again(engine)


def test_a_database_that_is_not_the_recorded_one_is_refused(
    participant: MysqlParticipant, shelf: MariaShelf, engine: Engine
) -> None:
    assert participant.database
    shelf.outside("update txsaga_database set uuid = repeat('0', 32)")
    with pytest.raises(EvidenceMissing):
        enlisted(participant, new_branch(), PUT, id=4)
    assert shelf.items() == set()
    lent_again(engine)


def test_it_waits_for_a_lock_and_a_deadlock_is_a_no(
    participant: MysqlParticipant, shelf: MariaShelf, engine: Engine
) -> None:
    create(engine, "shelf")
    branched = enlisted(participant, new_branch(), "delete from item where id = -2", "delete from item where id = -1")
    with shelf.engine.connect() as other:
        other.exec_driver_sql("insert into item select seq from seq_1000_to_1100")
        other.exec_driver_sql("select id from item where id = -1 for update")
        vote = branched.prepare()
        eventually(lambda: waits_for_a_lock(other), "the journal waits")
        crossing = start(lambda: other.exec_driver_sql("select id from item where id = -2 for update"))
        with pytest.raises(Deadlocked):
            vote()
        crossing.result(20)
        other.rollback()
    assert branched.finish(ROLLBACK)() is Finish.DONE
    branched.leave()
    assert shelf.items() == set()
    lent_again(engine)
