"""The migrations lead to the tables that the program names, and no process touches a schema that is not its own."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, text

from tests.scene.stored import Stored
from tests.services.databases import fresh_name
from tests.services.installing import Install, installed_by_script
from tests.store import tables
from tests.store.catalog import DRIFT, described, installed
from txsaga.errors import SchemaMissing, SchemaTooNew, ServerTooOld
from txsaga.store import migrate
from txsaga.store.connection import make_engine, parse_url
from txsaga.store.store import Store
from txsaga.wiring.connecting import open_store

pytestmark = [pytest.mark.postgres, pytest.mark.core]


def test_files_are_named_by_their_revisions() -> None:
    config = Config()
    config.set_main_option("script_location", str(migrate.MIGRATIONS).replace("%", "%%"))
    known = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    assert list(migrate.revisions()) == known


@pytest.fixture
def engine(home_url: str) -> Iterator[Engine]:
    engine = make_engine(*parse_url(home_url))
    yield engine
    engine.dispose()


@pytest.fixture
def stored(home_url: str) -> Stored:
    return Stored(home_url)


@pytest.fixture
def migrated(home_url: str, stored: Stored, one_by_one: Install, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(migrate, "_upgrade", one_by_one)
    open_store(home_url).close()
    return stored.namespace


@pytest.fixture
def created(engine: Engine) -> Iterator[str]:
    """Give a namespace whose tables came straight from the program's own description."""
    namespace = fresh_name("made")
    with engine.execution_options(schema_translate_map={None: namespace}).begin() as connection:
        connection.execute(text(f'CREATE SCHEMA "{namespace}"'))
        tables.metadata.create_all(connection)
        connection.execute(text(f'SET LOCAL search_path TO "{namespace}"'))
        for name, query in tables.VIEWS.items():
            connection.execute(text(f"CREATE VIEW {name} WITH (security_invoker) AS {query}"))
    yield namespace
    with engine.begin() as connection:
        connection.execute(text(f'DROP SCHEMA "{namespace}" CASCADE'))


def test_the_migrated_tables_are_those_that_the_program_names(engine: Engine, migrated: str, created: str) -> None:
    assert described(engine, migrated) ^ described(engine, created) == set()


def test_the_script_of_the_tests_installs_what_the_migrations_do(
    home_database: str, engine: Engine, migrated: str
) -> None:
    joint, names = "&" if "?" in home_database else "?", [fresh_name("t"), fresh_name("t")]
    with installed_by_script():
        for name in names:  # the first one writes the script
            open_store(f"{home_database}{joint}namespace={name}").close()
    assert described(engine, names[1]) == described(engine, migrated)
    assert installed(engine, names[1]) == installed(engine, migrated)


def test_every_drift_would_be_seen(engine: Engine, stored: Stored, migrated: str) -> None:
    before = described(engine, migrated)
    unseen = []
    for change in DRIFT:
        with engine.connect() as connection:
            connection.execute(text(f'SET search_path = "{migrated}"'))
            connection.execute(text(change))
            connection.commit()
        after = described(engine, migrated)
        if after == before:
            unseen.append(change)
        before = after
    assert unseen == []


def test_migrating_again_changes_nothing(home_url: str, engine: Engine, stored: Stored, migrated: str) -> None:
    def everything() -> tuple[object, ...]:
        partitions = "SELECT count(*) FROM pg_inherits WHERE inhparent IN ('half'::regclass, 'op'::regclass)"
        rows = (stored.rows(f"SELECT * FROM {table}") for table in ("store", "tick", "alembic_version"))
        return described(engine, migrated), stored.value(partitions), *rows

    before = everything()
    assert migrate.migrate(engine, migrated) == migrate.newest()
    open_store(home_url).close()
    assert everything() == before


def test_of_racing_migrations_one_does_it_and_the_others_find_it_done(
    home_url: str, engine: Engine, stored: Stored, created: str
) -> None:
    with ThreadPoolExecutor(4) as threads:
        stores = list(threads.map(open_store, [home_url] * 4))
    for store in stores:
        store.close()
    assert len({store.registry.identity for store in stores}) == 1
    assert stored.rows("SELECT id FROM tick") == [(0,)]
    assert described(engine, stored.namespace) == described(engine, created)


def test_each_of_racing_migrations_knows_what_it_found(engine: Engine, stored: Stored) -> None:
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: migrate.migrate(engine, stored.namespace), range(4)))
    assert sorted(found, key=str) == [*[migrate.newest()] * 3, None]


@pytest.mark.parametrize("create", [True, False])
def test_a_newer_schema_is_left_alone(
    home_url: str, engine: Engine, stored: Stored, migrated: str, create: bool
) -> None:
    stored.rows("UPDATE alembic_version SET version_num = '9999'")
    before = described(engine, migrated)
    with pytest.raises(SchemaTooNew, match="schema 9999, newer than this program; upgrade txsaga"):
        Store.open(home_url, create=create)
    assert stored.value("SELECT version_num FROM alembic_version") == "9999"
    assert described(engine, migrated) == before


def test_an_empty_namespace_is_not_used_before_it_is_migrated(home_url: str, stored: Stored) -> None:
    with pytest.raises(SchemaMissing, match=r"has schema none, needs \w+; run `txsaga --namespace \w+ db migrate`"):
        Store.open(home_url)
    assert stored.value("SELECT to_regnamespace(:name)", name=stored.namespace) is None


def test_an_older_schema_is_not_used_before_it_is_migrated(
    home_url: str, migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "newest", lambda: "0777")
    with pytest.raises(SchemaMissing, match=r"has schema \w+, needs 0777; run `txsaga --namespace \w+ db migrate`"):
        Store.open(home_url)


@pytest.mark.parametrize("create", [True, False])
def test_a_server_that_is_too_old_is_refused_and_gets_no_tables(
    home_url: str, stored: Stored, monkeypatch: pytest.MonkeyPatch, create: bool
) -> None:
    monkeypatch.setattr(migrate, "OLDEST", 990_000)
    with pytest.raises(ServerTooOld, match=r"PostgreSQL \d+ is too old; txsaga needs 99 or later: upgrade the server"):
        Store.open(home_url, create=create)
    assert stored.value("SELECT to_regnamespace(:name)", name=stored.namespace) is None


@pytest.mark.parametrize(("one_more", "accepted"), [(0, True), (1, False)])
def test_the_oldest_version_that_will_do_is_the_first_that_does(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, one_more: int, accepted: bool
) -> None:
    with engine.connect() as connection:
        have = int(connection.execute(text("SHOW server_version_num")).scalar_one())
        monkeypatch.setattr(migrate, "OLDEST", have + one_more)
        if accepted:
            migrate.check_server(connection)
        else:
            with pytest.raises(ServerTooOld):
                migrate.check_server(connection)
