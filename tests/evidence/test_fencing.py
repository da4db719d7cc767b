"""A barrier keeps late work out, waits for nobody long and leaves nothing behind."""

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import Connection, NullPool, create_engine, event, text

from tests.evidence.books import Books, OpenEngine, enter
from tests.evidence.conftest import MARIADB, POSTGRESQL, SQLITE
from txsaga.core.identity import StoreId
from txsaga.errors import DecidedOtherwise, EvidenceMissing, StoreUnavailable, UnknownTransaction
from txsaga.evidence.database import SqlEvidence
from txsaga.evidence.sessions import short_waits

ONE, TWO, THREE = 1, 2, 3
SOON = 4.0  # seconds: the short time that a fence waits, with room for a busy machine; far from 50


@pytest.mark.rule("R10")
def test_a_barrier_makes_late_work_impossible(books: Books) -> None:
    assert books.evidence.fence(books.id(ONE)) == (False, {})
    with pytest.raises(DecidedOtherwise, match="already decided: ROLLBACK") as caught:
        with books.evidence.work(books.id(ONE)) as connection:
            enter(connection, 7)
    assert (caught.value.txid, caught.value.standing) == (ONE, "ROLLBACK")
    assert (books.entries(), books.outcomes()) == (set(), {ONE: 2})
    assert books.evidence.read(books.id(ONE)) == (False, {})


@pytest.mark.rule("R10")
def test_work_that_is_open_is_still_running_and_then_commits(books: Books) -> None:
    with books.evidence.work(books.id(ONE)) as connection:
        enter(connection, 7)
        started = time.monotonic()
        assert books.evidence.fence(books.id(ONE)) is None
        assert time.monotonic() - started < SOON
    assert books.evidence.fence(books.id(ONE)) == (True, {})
    assert (books.entries(), books.outcomes()) == ({7}, {ONE: 1})


def test_work_that_was_rolled_back_is_fenced(books: Books) -> None:
    with pytest.raises(ValueError), books.evidence.work(books.id(ONE)):
        raise ValueError
    assert books.evidence.fence(books.id(ONE)) == (False, {})
    assert books.evidence.fence(books.id(ONE)) == (False, {})


@pytest.mark.parametrize("kind", [POSTGRESQL, MARIADB])
@pytest.mark.rule("R10")
def test_open_work_does_not_hold_up_its_neighbours(books: Books) -> None:
    with books.evidence.work(books.id(ONE)):
        pass
    with books.evidence.work(books.id(TWO)) as connection:
        books.evidence.fill(connection, books.id(TWO), 0, b"late")
        started = time.monotonic()
        assert books.evidence.fence(books.id(THREE)) == (False, {})
        assert books.evidence.fence(books.id(0)) == (False, {})
        assert books.evidence.read_many([books.id(n) for n in range(4)]) == {
            books.id(0): (False, {}),
            books.id(ONE): (True, {}),
            books.id(THREE): (False, {}),
        }
        assert time.monotonic() - started < 0.9  # nothing was waited for
    assert books.outcomes() == {0: 2, ONE: 1, TWO: 1, THREE: 2}


SETTINGS: dict[str, str] = {
    "postgresql": "select current_setting('lock_timeout') || current_setting('synchronous_commit')",
    "mysql": "select concat(@@innodb_lock_wait_timeout, ' ', @@lock_wait_timeout)",
    "sqlite": "pragma busy_timeout",
}


@pytest.mark.parametrize("way", ["barrier", "standing", "running"])
def test_a_fence_leaves_the_session_as_it_was(open_engine: OpenEngine, books: Books, way: str) -> None:
    engine = open_engine(pool_size=1, max_overflow=0)
    evidence = SqlEvidence(engine)
    before = settings_of(engine.connect)
    if way == "running":
        with books.evidence.work(books.id(ONE)):
            assert evidence.fence(books.id(ONE)) is None
    else:
        for _ in range(1 if way == "barrier" else 2):
            assert evidence.fence(books.id(ONE)) == (False, {})
    assert settings_of(engine.connect) == before


@pytest.mark.parametrize("kind", [POSTGRESQL])
@pytest.mark.parametrize("chosen", ["off", "local"])
def test_a_barrier_and_local_work_are_flushed_whatever_the_database_says(books: Books, chosen: str) -> None:
    assert books.evidence.database
    books.run(f"alter database {books.engine.url.database} set synchronous_commit = {chosen}")
    books.engine.dispose()
    flushed, show = "on" if chosen == "off" else chosen, text("show synchronous_commit")
    with books.evidence.work(books.id(TWO)) as connection:
        assert connection.scalar(show) == flushed
    assert written_with(books) == flushed
    with books.engine.connect() as connection:
        assert connection.scalar(show) == chosen


def written_with(books: Books) -> str:
    """Write a barrier, and return the setting that it was written with."""
    books.run(
        "create table seen (setting text)",
        """create function look() returns trigger language plpgsql as
           $$ begin insert into seen values (current_setting('synchronous_commit')); return null; end $$""",
        "create trigger look after insert on txsaga_evidence execute function look()",
    )
    books.evidence.fence(books.id(ONE))
    with books.engine.connect() as connection:
        return str(connection.scalar(text("select setting from seen")))


@pytest.mark.parametrize("kind", [SQLITE])
def test_a_fence_in_sqlite_waits_while_anybody_writes(books: Books) -> None:
    books.evidence.fence(books.id(ONE))
    with books.engine.connect() as other:
        other.exec_driver_sql("BEGIN IMMEDIATE")
        assert books.evidence.fence(books.id(TWO)) is None
        assert books.evidence.fence(books.id(ONE)) == (False, {})


@pytest.mark.rule("R8")
@pytest.mark.parametrize("stale", [StoreId(uuid4(), 2), None])
def test_rows_of_another_store_or_incarnation_never_answer(books: Books, stale: StoreId | None) -> None:
    books.store = StoreId(books.store.uuid, 2)
    older = stale or StoreId(books.store.uuid, 1)
    with books.evidence.work(older.transaction(ONE)) as connection:
        books.evidence.fill(connection, older.transaction(ONE), 0, b"somebody else's")
    assert books.evidence.read(books.id(ONE)) is None
    assert books.evidence.read_many([books.id(ONE), older.transaction(ONE)]) == {
        older.transaction(ONE): (True, {0: b"somebody else's"})
    }
    assert books.evidence.fence(books.id(ONE)) == (False, {})
    assert books.evidence.read(older.transaction(ONE)) == (True, {0: b"somebody else's"})


def test_many_are_read_in_one_answer(books: Books) -> None:
    for txid in (3, 1):
        with books.evidence.work(books.id(txid)) as connection:
            books.evidence.fill(connection, books.id(txid), txid, b"%d" % txid)
    books.evidence.fence(books.id(2))
    found = books.evidence.read_many([books.id(txid) for txid in range(12_000)])
    assert found == {
        books.id(1): (True, {1: b"1"}),
        books.id(2): (False, {}),
        books.id(3): (True, {3: b"3"}),
    }
    assert books.evidence.read_many([]) == {}


@pytest.mark.parametrize("question", ["read", "fence", "work"])
def test_an_id_that_is_none_is_refused(books: Books, question: str) -> None:
    with pytest.raises(UnknownTransaction):
        with getattr(books.evidence, question)("17"):
            pass


def test_a_pool_without_a_free_connection_is_unavailable(open_engine: OpenEngine) -> None:
    engine = open_engine(pool_size=1, max_overflow=0, pool_timeout=0.05)
    books = Books(engine).open()
    assert books.evidence.database
    with engine.connect(), pytest.raises(StoreUnavailable, match="'books' has no free connection"):
        books.evidence.read(books.id(ONE))


def settings_of(connect: Callable[[], Connection]) -> object:
    with connect() as connection:
        return connection.scalar(text(SETTINGS[connection.dialect.name]))


@pytest.mark.rule("R10")
def test_a_name_that_leads_to_another_database_since_is_neither_read_nor_fenced(tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("one.db", "two.db")]
    for file in files:
        SqlEvidence(create_engine(f"sqlite:///{file}", poolclass=NullPool), name="books").database  # noqa: B018
    leads_to = [files[0]]
    moving = create_engine("sqlite://", creator=lambda: sqlite3.connect(leads_to[0]), poolclass=NullPool)
    books = Books(moving)
    assert books.evidence.fence(books.id(ONE)) == (False, {})
    leads_to[0] = files[1]
    with pytest.raises(EvidenceMissing, match="another database"):
        books.evidence.fence(books.id(TWO))
    leads_to[0] = files[0]
    assert books.evidence.read(books.id(ONE)) == (False, {})
    leads_to[0] = files[1]
    with pytest.raises(EvidenceMissing, match="another database"):
        books.evidence.read(books.id(ONE))
    assert books.outcomes() == {}


@pytest.mark.parametrize("kind", [POSTGRESQL, MARIADB])
def test_a_question_to_a_locked_table_comes_to_an_end_and_leaves_no_limit_behind(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txsaga.evidence.database.short_waits", lambda connection, _: short_waits(connection, 1))
    books.evidence.fence(books.id(ONE))
    dialect = books.engine.dialect.name
    with books.engine.connect() as other:
        if dialect == "postgresql":
            other.exec_driver_sql("lock table txsaga_evidence in access exclusive mode")
        else:
            other.exec_driver_sql("lock tables txsaga_evidence write, txsaga_database write")
        started = time.monotonic()
        with pytest.raises(StoreUnavailable):
            books.evidence.read(books.id(ONE))
        assert time.monotonic() - started < SOON
        if dialect != "postgresql":
            other.exec_driver_sql("unlock tables")
    assert books.evidence.read(books.id(ONE)) == (False, {})
    limits = "show lock_timeout" if dialect == "postgresql" else "select @@session.lock_wait_timeout"
    with books.engine.connect() as connection:
        assert connection.exec_driver_sql(limits).scalar_one() in ("0", 86400)


class VaultSealed(Exception):
    """What the user's own way to connect raises."""


@pytest.mark.parametrize("kind", [SQLITE])
def test_a_way_to_connect_that_raises_what_it_likes_is_a_database_that_is_away(books: Books) -> None:
    books.evidence.fence(books.id(ONE))

    def sealed(*_: object) -> None:
        raise VaultSealed("ask again later")

    event.listen(books.engine, "do_connect", sealed)
    books.engine.dispose()
    told = "resource 'books' can't be connected to: VaultSealed: ask again later"
    for ask in (books.evidence.read, books.evidence.fence):
        with pytest.raises(StoreUnavailable, match=told):
            ask(books.id(TWO))
    event.remove(books.engine, "do_connect", sealed)
    assert books.evidence.read(books.id(ONE)) == (False, {})
