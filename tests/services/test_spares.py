"""A namespace that a test gave back is as a new one; one that was altered, or is in use, is not given to another."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from sqlalchemy import Engine, NullPool, create_engine, make_url, text

import txsaga
from tests.services.databases import fresh_name
from tests.services.installing import Install, installed_by_script
from tests.services.spares import Spares, described_in_short
from tests.store import tables
from tests.store.catalog import DRIFT, described, installed
from txsaga.store import migrate
from txsaga.wiring.connecting import open_store

pytestmark = pytest.mark.postgres

BEYOND_TABLES = [
    "GRANT SELECT ON half TO PUBLIC",
    "DROP POLICY bound ON claim",
    "ALTER TABLE vote DISABLE ROW LEVEL SECURITY",
    "CREATE FUNCTION nothing() RETURNS void LANGUAGE sql AS 'SELECT'",
    "DROP TABLE half_0",
    "UPDATE alembic_version SET version_num = '9999'",
]


@pytest.fixture
def engine(home_database: str) -> Iterator[Engine]:
    engine = create_engine(home_database, poolclass=NullPool)
    yield engine
    engine.dispose()


@pytest.fixture
def own_spares(one_by_one: Install, monkeypatch: pytest.MonkeyPatch) -> Iterator[Spares]:
    monkeypatch.setattr(migrate, "_upgrade", one_by_one)
    with closing(Spares()) as spares, installed_by_script(spares):
        yield spares


def named(home_database: str, namespace: str) -> str:
    return f"{home_database}{'&' if '?' in home_database else '?'}namespace={namespace}"


def new(home_database: str) -> str:
    """Install a namespace; return its name."""
    namespace = fresh_name("t")
    open_store(named(home_database, namespace)).close()
    return namespace


def rows(engine: Engine, namespace: str) -> dict[str, object]:
    """Count the rows of each table, and read where each sequence stands."""
    found: dict[str, object] = {}
    with engine.connect() as connection:
        for table in tables.metadata.tables:
            found[table] = connection.execute(text(f'SELECT count(*) FROM "{namespace}"."{table}"')).scalar_one()
        sql = "SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = :s"
        found.update(map(tuple, connection.execute(text(sql), {"s": namespace})))
    return found


def is_there(engine: Engine, namespace: str) -> bool:
    """Return whether nobody took a namespace."""
    with engine.connect() as connection:
        return connection.execute(text("SELECT to_regnamespace(:s)"), {"s": namespace}).scalar() is not None


def test_one_that_was_given_back_is_as_a_new_one(engine: Engine, home_database: str, own_spares: Spares) -> None:
    fresh, used = new(home_database), new(home_database)
    with txsaga.connect(named(home_database, used), roles=False, answering=False, env={}) as broker:
        broker.create_topic("orders", "transaction", queues=2)
        producer = broker.producer("shop", checker=lambda _: None)
        for key in (None, "1"):
            with producer.transaction(key=key) as tx:
                tx.send("orders", b"1")
        broker.kernel.store.log.tick(1000)
    assert rows(engine, used) != rows(engine, fresh)
    own_spares.give_back(named(home_database, used))
    again = new(home_database)
    assert not is_there(engine, used)
    assert rows(engine, again) == rows(engine, fresh)
    assert described(engine, again) == described(engine, fresh)
    assert installed(engine, again) == installed(engine, fresh)


def test_one_that_is_in_use_is_left_alone(engine: Engine, home_database: str, own_spares: Spares) -> None:
    used = named(home_database, new(home_database))
    with closing(open_store(used)):
        own_spares.give_back(used)
    other = new(home_database)
    assert is_there(engine, used.rpartition("=")[2])
    assert is_there(engine, other)


def test_every_change_is_seen(engine: Engine, home_database: str, own_spares: Spares) -> None:
    altered = new(home_database)
    unseen, before = [], described_in_short(make_url(home_database), altered)
    for change in [*DRIFT, *BEYOND_TABLES]:
        with engine.begin() as connection:
            connection.execute(text(f'SET search_path = "{altered}"'))
            connection.execute(text(change))
        after = described_in_short(make_url(home_database), altered)
        if after == before:
            unseen.append(change)
        before = after
    assert unseen == []
    own_spares.give_back(named(home_database, altered))
    new(home_database)
    assert is_there(engine, altered)
