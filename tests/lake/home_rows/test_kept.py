"""What a table of the home database refuses, keeps or hides is the same when rows come by a decision."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
from sqlalchemy import text

from tests.lake.books import Books
from tests.lake.conftest import books, open_books, warehouse
from tests.lake.home_rows.home_shop import INSERT, Shop, made, sales, shop, told
from tests.services.databases import fresh_name
from txsaga.errors import ConfigError, EffectConflict, RightsMissing
from txsaga.lake import home_rows_store
from txsaga.lake.home_rows import RowsMode, RowsWay

__all__ = ["books", "open_books", "shop", "warehouse"]

pytestmark = pytest.mark.postgres

LONG = """
CREATE FUNCTION {s}.long(int) RETURNS text LANGUAGE sql IMMUTABLE AS
    'SELECT string_agg(md5(i::text), '''') FROM generate_series(1, 1000) i';
CREATE INDEX ON {s}.sale ({s}.long(id))"""
ODD = """
CREATE TABLE {s}.odd (gone int, id int UNIQUE DEFERRABLE, cents int NOT NULL DEFAULT 3, twice int GENERATED ALWAYS AS
    (cents * 2) STORED, EXCLUDE USING btree (cents WITH =) WHERE (id > 5));
INSERT INTO {s}.odd VALUES (1, 1, -1);
ALTER TABLE {s}.odd ADD CHECK (cents > 0) NOT VALID, DROP COLUMN gone;
CREATE INDEX ON {s}.odd (lower(id::text) DESC) INCLUDE (cents) WHERE cents > 7"""
RAISING = """
CREATE FUNCTION {s}.no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE SQLSTATE ''SHOP1''; END';
CREATE {kind} no AFTER INSERT ON {s}.sale {when} FOR EACH ROW EXECUTE FUNCTION {s}.no()"""


@pytest.mark.parametrize(
    "more",
    [
        "ALTER TABLE {s}.sale ADD UNIQUE (cents) DEFERRABLE INITIALLY DEFERRED",
        "ALTER TABLE {s}.sale ADD FOREIGN KEY (id) REFERENCES {s}.price DEFERRABLE INITIALLY DEFERRED",
        RAISING.replace("{kind}", "CONSTRAINT TRIGGER").replace("{when}", "DEFERRABLE INITIALLY DEFERRED"),
        RAISING.replace("{kind}", "TRIGGER").replace("{when}", ""),
        LONG,
        "ALTER TABLE {s}.sale ADD half int GENERATED ALWAYS AS (1 / (id - 8)) STORED",
    ],
    ids=["late key", "late reference", "late trigger", "trigger", "long entry", "generated"],
)
def test_whatever_a_table_refuses_rolls_all_of_it_back(books: Books, shop: Shop, more: str) -> None:
    shop.run(more)
    with pytest.raises(EffectConflict, match="can't be placed"), books.producer.transaction(key="job") as tx:
        tx.rows(f"{shop.name}.sale").insert(sales(8, 9))
        tx.send("booked", b"8")
    assert (shop.ids("sale"), told(books)) == ([], 0)
    assert not books.broker.kernel.store.overview.transactions(undecided=True, limit=1)


def test_what_is_checked_late_may_come_with_another_table(books: Books, shop: Shop) -> None:
    shop.run("CREATE TABLE {s}.line (id int REFERENCES {s}.price DEFERRABLE INITIALLY DEFERRED)")
    with books.producer.transaction() as tx:
        tx.rows(f"{shop.name}.line").insert(sales(7).select(["id"]))
        tx.rows(f"{shop.name}.price").insert(sales(7))
    assert (shop.ids("line"), shop.ids("price")) == ([7], [1, 2, 7])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("CREATE TABLE {s}.line (price int REFERENCES {s}.price)", "foreign keys"),
        ("GRANT SELECT ON {s}.price TO PUBLIC", "grants"),
        ("GRANT SELECT (id) ON {s}.price TO PUBLIC", "grants"),
        ("CREATE RULE quiet AS ON DELETE TO {s}.price DO INSTEAD NOTHING", "rules"),
        ("CREATE VIEW {s}.cheap AS SELECT * FROM {s}.price", "depend"),
    ],
)
def test_nothing_is_lost_by_replacing(books: Books, shop: Shop, more: str, said: str) -> None:
    shop.run(more)
    with books.producer.transaction(key="job") as tx, pytest.raises(ConfigError, match=said):
        tx.rows(f"{shop.name}.price").replace(sales(1))
    assert shop.ids("price") == [1, 2]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("ALTER TABLE {s}.price ADD note text", "columns"),
        ("ALTER TABLE {s}.price ALTER cents TYPE bigint", "columns"),
        ("CREATE UNIQUE INDEX ON {s}.price (cents)", "indexes"),
        ("ALTER TABLE {s}.price ADD CHECK (cents < 1000)", "checks"),
        ("GRANT SELECT ON {s}.price TO PUBLIC", "grants"),
        ("GRANT SELECT (id) ON {s}.price TO PUBLIC", "grants"),
        ("ALTER TABLE {s}.price ENABLE ROW LEVEL SECURITY", "policies"),
        ("CREATE RULE quiet AS ON DELETE TO {s}.price DO INSTEAD NOTHING", "rules"),
    ],
)
def test_what_a_table_got_since_it_was_staged_is_not_lost(books: Books, shop: Shop, more: str, said: str) -> None:
    with pytest.raises(EffectConflict, match=said), books.producer.transaction(key="job") as tx:
        tx.rows(f"{shop.name}.price").replace(sales(7))
        tx.send("booked", b"7")
        shop.run(more)
    assert (shop.ids("price"), told(books)) == ([1, 2], 0)


def test_a_table_with_everything_that_can_be_copied_is_replaced(books: Books, shop: Shop) -> None:
    shop.run(ODD)
    for number in (1, 2):
        with books.producer.transaction() as tx:
            tx.rows(f"{shop.name}.odd").replace(sales(number))
        assert shop.ids("odd") == [number]


@contextmanager
def clerk(shop: Shop, rights: str) -> Iterator[str]:
    """Give a login with these rights in the shop."""
    name = fresh_name("clerk")
    shop.run(f"CREATE ROLE {name}; GRANT CREATE, USAGE ON SCHEMA {{s}} TO {name}; " + rights.replace("{clerk}", name))
    try:
        yield name
    finally:
        shop.run(f"DROP OWNED BY {name}; DROP ROLE {name}")


def test_a_right_that_placing_takes_is_asked_for_first(shop: Shop) -> None:
    with clerk(shop, "GRANT SELECT, INSERT (id) ON {s}.sale TO {clerk}") as name:
        for columns, error in ((["id"], None), (["id", "cents"], RightsMissing)):
            with shop.open() as connection:
                target = home_rows_store.find(connection, f"{shop.name}.sale", "txsaga")
                connection.execute(text(f"SET LOCAL ROLE {name}"))
                with pytest.raises(error, match="INSERT cents") if error else nullcontext():
                    home_rows_store.make(connection, target, columns, "none", INSERT)


OTHERS = """
SELECT count(*) FROM pg_class c, aclexplode(relacl) WHERE grantee <> relowner AND relnamespace = '{s}'::regnamespace"""


@pytest.mark.parametrize("way", [INSERT, RowsWay(RowsMode.REPLACE)], ids=lambda way: way.mode)
def test_what_is_undecided_is_nobody_elses_to_read(shop: Shop, way: RowsWay) -> None:
    with clerk(shop, "ALTER DEFAULT PRIVILEGES IN SCHEMA {s} GRANT ALL ON TABLES TO {clerk}, PUBLIC"):
        made(shop, way, "price")
        assert (shop.run(OTHERS), len(shop.staged())) == ([(0,)], 1)


def test_a_private_table_stays_private(books: Books, shop: Shop) -> None:
    shop.run("ALTER DEFAULT PRIVILEGES IN SCHEMA {s} GRANT SELECT ON TABLES TO PUBLIC")
    for number in (7, 8):
        with books.producer.transaction() as tx:
            tx.rows(f"{shop.name}.price").replace(sales(number))
        assert (shop.run(OTHERS), shop.ids("price")) == ([(0,)], [number])


def test_a_row_that_a_policy_refuses_rolls_all_of_it_back(shop: Shop) -> None:
    other, place = fresh_name("clerk"), shop.name
    shop.run(f"CREATE ROLE {other}; GRANT USAGE, CREATE ON SCHEMA {place} TO {other}")
    shop.run(f"GRANT SELECT, INSERT ON {place}.sale TO {other}; ALTER TABLE {place}.sale ENABLE ROW LEVEL SECURITY")
    shop.run(f"CREATE POLICY dear ON {place}.sale USING (true) WITH CHECK (cents > 100)")
    try:
        with pytest.raises(EffectConflict, match="policy"), shop.open() as connection:
            connection.execute(text(f"SET LOCAL ROLE {other}"))
            target = home_rows_store.find(connection, f"{place}.sale", "txsaga")
            write = home_rows_store.make(connection, target, ["id", "cents"], "none", INSERT)
            connection.execute(text(f"INSERT INTO {write.staging} VALUES (1, 5, 1)"))
            home_rows_store.seal(connection, write)
            home_rows_store.place(connection, write)
    finally:
        shop.run(f"DROP OWNED BY {other}; DROP ROLE {other}")
