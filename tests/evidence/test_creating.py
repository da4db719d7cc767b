"""The tables come once, whoever is first, or the owner is told what to run."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine, inspect, text

from tests.evidence.books import Books, OpenEngine
from tests.evidence.clerks import clerk
from tests.evidence.conftest import MARIADB, POSTGRESQL
from txsaga.errors import ConfigError, EvidenceMissing, RightsMissing, StoreUnavailable
from txsaga.evidence.database import SqlEvidence
from txsaga.evidence.location import create
from txsaga.evidence.schema import ddl

TABLES = {"txsaga_database", "txsaga_evidence", "txsaga_inbox"}
DIALECTS = ["mariadb", "mysql", "postgresql", "sqlite"]


@pytest.mark.rule("R10")
def test_the_first_question_creates_the_tables_and_the_uuid_stays(open_engine: OpenEngine) -> None:
    engine = open_engine()
    uuid = SqlEvidence(engine).database
    assert set(inspect(engine).get_table_names()) == TABLES
    assert SqlEvidence(open_engine(), create=False).database == uuid
    assert create(engine) == uuid


def test_every_database_has_a_uuid_of_its_own(open_engine: OpenEngine, tmp_path: Path) -> None:
    other = create_engine(f"sqlite:///{tmp_path / 'other.db'}")
    assert create(open_engine()) != create(other)
    other.dispose()


def test_eight_that_create_at_once_agree_on_the_uuid(open_engine: OpenEngine) -> None:
    engines = [open_engine() for _ in range(8)]
    for engine in engines:
        engine.connect().close()
    together = threading.Barrier(8)

    def race(number: int) -> object:
        together.wait()
        return create(engines[number])

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(race, range(8)))) == 1
    with engines[0].connect() as connection:
        assert connection.scalar(text("select count(*) from txsaga_database")) == 1


def test_the_printed_sql_creates_all_of_it_and_can_be_run_again(open_engine: OpenEngine) -> None:
    engine = open_engine()
    for _ in range(2):
        with engine.begin() as connection:
            for statement in ddl(engine.dialect.name).split("\n--")[0].split(";"):
                if statement.strip():
                    connection.exec_driver_sql(statement)
    books = Books(engine).open()
    books.evidence = SqlEvidence(engine, create=False)
    with books.evidence.work(books.id(1)):
        pass
    assert books.outcomes() == {1: 1}


def test_a_table_without_its_uuid_is_completed(open_engine: OpenEngine) -> None:
    engine = open_engine()
    create(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql("delete from txsaga_database")
    assert create(engine) == SqlEvidence(engine).database


def test_where_creating_is_switched_off_the_error_names_the_command(open_engine: OpenEngine) -> None:
    engine = open_engine()
    with pytest.raises(EvidenceMissing) as caught:
        SqlEvidence(engine, name="billing", create=False).read(f"{'0' * 32}-1-1")
    assert "'billing'" in str(caught.value)
    assert f"`txsaga barrier ddl {engine.dialect.name}`" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not inspect(engine).get_table_names()


@pytest.mark.parametrize("kind", [POSTGRESQL, MARIADB])
def test_a_user_without_rights_is_told_what_the_owner_must_do(open_engine: OpenEngine) -> None:
    owner = open_engine()
    with clerk(owner) as engine:
        with pytest.raises(EvidenceMissing, match="txsaga barrier ddl"):
            create(engine, "billing")
        create(owner)
        with pytest.raises(RightsMissing, match="'billing' must grant us"):
            SqlEvidence(engine, name="billing").fence(f"{'0' * 32}-1-1")


@pytest.mark.parametrize("kind", [POSTGRESQL])
def test_the_table_is_found_in_whichever_schema_the_path_leads_to(open_engine: OpenEngine) -> None:
    path = {"options": '-csearch_path=absent,"Books",public'}
    books = Books(open_engine(connect_args=path))
    books.run('create schema "Books"')
    books.open()
    with books.evidence.work(books.id(1)) as connection:
        connection.exec_driver_sql("set local search_path to pg_temp")
        books.evidence.fill(connection, books.id(1), 0, b"late")
    assert set(inspect(books.engine).get_table_names(schema="Books")) == TABLES | {"entry"}
    assert books.evidence.read(books.id(1)) == (True, {0: b"late"})


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true"])
def test_a_database_in_memory_is_refused(url: str) -> None:
    engine = create_engine(url, poolclass=NullPool)
    with pytest.raises(ConfigError, match="in memory"):
        _ = SqlEvidence(engine).database
    with pytest.raises(ConfigError, match="in memory"):
        create(engine)
    engine.dispose()


def test_a_kind_of_database_that_we_do_not_know_is_refused() -> None:
    with pytest.raises(ConfigError, match="'oracle'; use one of mariadb, mysql, postgresql, sqlite"):
        ddl("oracle")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_printed_sql_ends_with_the_rights_that_are_needed(dialect: str) -> None:
    assert ddl(dialect).rstrip().rsplit("\n", 1)[1].startswith("-- The application needs select on")


@pytest.mark.parametrize("kind", [MARIADB])
def test_the_tables_are_transactional_whatever_the_default_engine_is(open_engine: OpenEngine) -> None:
    engine = open_engine(connect_args={"init_command": "set default_storage_engine = MyISAM"})
    create(engine)
    with engine.connect() as connection:
        tables = "information_schema.tables where table_schema = database()"
        assert connection.scalars(text(f"select distinct engine from {tables}")).all() == ["InnoDB"]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://u:secret@127.0.0.1:1/books",
        "mysql+pymysql://u:secret@127.0.0.1:1/books",
        "sqlite:////nowhere/at/all/books.db",
    ],
)
def test_a_database_that_does_not_answer_is_named_without_its_password(url: str) -> None:
    engine = create_engine(url)
    evidence = SqlEvidence(engine, name="billing")
    with pytest.raises(StoreUnavailable, match="'billing'") as caught:
        evidence.read(f"{'0' * 32}-1-1")
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is not None
