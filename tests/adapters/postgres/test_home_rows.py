"""Rows for tables of the home database are in their place with the decision, whoever writes that, or nowhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import Connection, text

from tests.adapters.lake.books import Books
from tests.adapters.lake.conftest import books, open_books, warehouse
from tests.services.databases import fresh_name
from txsaga.adapters.postgres import staging_tables
from txsaga.adapters.postgres.connection import transaction
from txsaga.adapters.postgres.store import PostgresStore
from txsaga.errors import ConfigError, EffectConflict, InDoubt, RightsMissing, StoreError
from txsaga.errors.lake import ColumnsDiffer
from txsaga.model.checks import CheckProfile
from txsaga.model.decision import LocalState
from txsaga.model.home_rows import RowsMode, RowsWay, RowsWrite
from txsaga.testing.checking import check_once

__all__ = ["books", "open_books", "warehouse"]

pytestmark = pytest.mark.postgres

AT_ONCE = CheckProfile(min_age=timedelta(0), interval=timedelta(0))
MARCH = "FOR VALUES FROM ('2025-03-01') TO ('2025-04-01')"
TABLES = """
CREATE TABLE {s}.sale (id int PRIMARY KEY, cents int NOT NULL CHECK (cents >= 0), note text DEFAULT 'none',
                       number int GENERATED ALWAYS AS IDENTITY);
CREATE TABLE {s}.price (id int PRIMARY KEY, cents int NOT NULL);
CREATE TABLE {s}.visit (id int, day date NOT NULL, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
INSERT INTO {s}.price VALUES (1, 100), (2, 200);
"""


class Died(Exception):
    """What stands for the end of a process."""


class Shop:
    """Tables of somebody else's in the home database."""

    def __init__(self, books: Books) -> None:
        self.name, self._store = fresh_name("shop"), books.broker.kernel.store
        assert isinstance(self._store, PostgresStore)

    @contextmanager
    def open(self) -> Iterator[Connection]:
        assert isinstance(self._store, PostgresStore)
        with transaction(self._store.engine) as connection:
            yield connection

    def run(self, sql: str) -> list[Any]:
        with self.open() as connection:
            found = connection.execute(text(sql.format(s=self.name)))
            return list(found) if found.returns_rows else []

    def ids(self, table: str) -> list[int]:
        return [id for (id,) in self.run(f"SELECT id FROM {{s}}.{table} ORDER BY id")]

    def staged(self) -> list[str]:
        named = "SELECT relname FROM pg_class WHERE relnamespace = '{s}'::regnamespace AND relkind = 'r'"
        return [name for (name,) in self.run(named) if name.startswith(staging_tables.PREFIX)]


@pytest.fixture
def shop(books: Books) -> Iterator[Shop]:
    """Give a shop whose tables lie in the home database."""
    made = Shop(books)
    made.run("CREATE SCHEMA {s};" + TABLES)
    yield made
    made.run("DROP SCHEMA {s} CASCADE")


def sales(*ids: int, cents: int = 5) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int32()), "cents": pa.array([cents] * len(ids), pa.int32())})


def visits(*ids: int, day: str = "2025-03-03") -> pa.Table:
    return pa.table({"id": ids, "day": [day] * len(ids)})


def told(books: Books) -> int:
    with books.broker.cut() as cut:
        return sum(cut.heads.get("booked", ()))


def test_rows_and_messages_are_there_together(books: Books, shop: Shop) -> None:
    with books.producer.transaction() as tx:
        assert tx.rows(f"{shop.name}.sale").insert(sales(1, 2).to_reader()) == 2
        assert tx.rows(f"{shop.name}.sale").insert(sales(3)) == 1
        tx.send("booked", b"3")
        assert shop.ids("sale") == []
    assert shop.ids("sale") == [1, 2, 3]
    assert shop.run("SELECT DISTINCT note, number > 0 FROM {s}.sale") == [("none", True)]
    assert (told(books), shop.staged()) == (1, [])


def test_what_rolls_back_is_nowhere_and_collected(books: Books, shop: Shop) -> None:
    with pytest.raises(Died), books.producer.transaction() as tx:
        tx.rows(f"{shop.name}.sale").insert(sales(1))
        assert books.broker.kernel.rows.collect() == []
        raise Died
    assert shop.ids("sale") == []
    assert len(books.broker.kernel.rows.collect(dry_run=True)) == len(shop.staged()) == 1
    assert len(books.broker.kernel.rows.collect()) == 1
    assert shop.staged() == []


def test_rows_that_a_key_forbids_roll_all_of_it_back(books: Books, shop: Shop) -> None:
    shop.run("INSERT INTO {s}.sale VALUES (2, 1, 'theirs')")
    with pytest.raises(EffectConflict, match="sale_pkey"), books.producer.transaction() as tx:
        tx.rows(f"{shop.name}.sale").insert(sales(1, 2))
        tx.send("booked", b"3")
    assert (shop.ids("sale"), told(books)) == ([2], 0)


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
    assert not books.broker.kernel.store.registry.transactions(undecided=True, limit=1)


def test_what_is_checked_late_may_come_with_another_table(books: Books, shop: Shop) -> None:
    shop.run("CREATE TABLE {s}.line (id int REFERENCES {s}.price DEFERRABLE INITIALLY DEFERRED)")
    with books.producer.transaction() as tx:
        tx.rows(f"{shop.name}.line").insert(sales(7).select(["id"]))
        tx.rows(f"{shop.name}.price").insert(sales(7))
    assert (shop.ids("line"), shop.ids("price")) == ([7], [1, 2, 7])


def test_rows_become_a_partition(books: Books, shop: Shop) -> None:
    with books.producer.transaction() as tx:
        tx.rows(f"{shop.name}.visit").attach(visits(1, 2), "visit_march", MARCH)
    assert shop.ids("visit") == shop.ids("visit_march") == [1, 2]
    left = "SELECT conname FROM pg_constraint WHERE conrelid = '{s}.visit_march'::regclass AND contype = 'c'"
    assert shop.run(left) == []
    assert shop.staged() == []


def test_a_table_takes_the_place_of_another(books: Books, shop: Shop) -> None:
    with books.producer.transaction() as tx:
        tx.rows(f"{shop.name}.price").replace(sales(7))
        assert shop.ids("price") == [1, 2]
    assert (shop.ids("price"), shop.staged()) == ([7], [])
    with pytest.raises(StoreError, match="duplicate"):
        shop.run("INSERT INTO {s}.price VALUES (7, 1)")


@pytest.mark.rule("R2")
@pytest.mark.parametrize("answer", [LocalState.COMMIT, LocalState.ROLLBACK])
def test_check_back_places_what_a_dead_owner_closed(
    books: Books, open_books: Callable[..., Books], shop: Shop, answer: LocalState
) -> None:
    with pytest.raises(Died), books.producer.transaction(key="job") as tx:
        tx.rows(f"{shop.name}.sale").insert(sales(1))
        tx.rows(f"{shop.name}.price").replace(sales(7))
        tx.send("booked", b"1")
        tx.prepare()
        raise Died
    other = open_books()
    other.answer = books.answer = answer
    check_once(other.broker.kernel, AT_ONCE)
    done = answer is LocalState.COMMIT
    assert (shop.ids("sale"), shop.ids("price"), told(other)) == (([1], [7], 1) if done else ([], [1, 2], 0))


@pytest.mark.rule("R4")
def test_rows_of_a_dead_attempt_do_not_count(books: Books, shop: Shop) -> None:
    dead = books.producer.transaction(key="job").__enter__()
    dead.rows(f"{shop.name}.sale").insert(sales(1))
    with books.producer.transaction(key="job") as tx:
        tx.rows(f"{shop.name}.sale").insert(sales(2))
    assert shop.ids("sale") == [2]
    assert len(books.broker.kernel.rows.collect()) == 1


def test_rows_go_with_a_coordinated_transaction(books: Books, shop: Shop, tmp_path: Path) -> None:
    from txsaga import Folder

    (tmp_path / "reports").mkdir()
    books.broker.enlist("reports", Folder(tmp_path / "reports"))
    with books.producer.coordinated("reports") as tx:
        tx.rows(f"{shop.name}.sale").insert(sales(1))
        with tx.on("reports") as folder:
            folder.write("1.txt", b"sold")
        assert shop.ids("sale") == []
    assert shop.ids("sale") == [1]


REFUSED: list[tuple[str, str, pa.Table, type[Exception], str]] = [
    ("sale", "insert", sales(1).rename_columns(["id", "cent"]), ColumnsDiffer, "'cent'"),
    ("sale", "insert", sales(1).rename_columns(["id", "number"]), ColumnsDiffer, "'number'"),
    ("sale", "insert", sales(1, cents=-1), StoreError, "sale_cents_check"),
    ("sale", "replace", sales(1), ColumnsDiffer, "'note'"),
    ("nothing", "insert", sales(1), ConfigError, "create it"),
    ("price", "attach", sales(1), ConfigError, "this way"),
    ("visit", "attach", visits(1, day="2025-04-01"), StoreError, "txsaga_bounds"),
    ("visit", "replace", visits(1), ConfigError, "partitions"),
    ("visit_pkey", "insert", visits(1), ConfigError, "no table"),
]


@pytest.mark.parametrize(("table", "way", "rows", "error", "said"), REFUSED, ids=lambda value: str(value)[:20])
def test_rows_that_do_not_fit_are_refused_while_they_are_staged(
    books: Books, shop: Shop, table: str, way: str, rows: pa.Table, error: type[Exception], said: str
) -> None:
    more = ("visit_march", MARCH) if way == "attach" else ()
    with books.producer.transaction(key="job") as tx, pytest.raises(error, match=said):
        getattr(tx.rows(f"{shop.name}.{table}"), way)(rows, *more)
    assert shop.staged() == []


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


def test_our_own_tables_and_local_work_are_refused(books: Books) -> None:
    namespace = books.broker.kernel.store.namespace  # type: ignore[attr-defined]  # of PostgreSQL
    with books.producer.transaction(key="job") as tx, pytest.raises(ConfigError, match="own"):
        tx.rows(f"{namespace}.op").insert(sales(1))


def made(shop: Shop, way: RowsWay, table: str = "sale") -> RowsWrite:
    with shop.open() as connection:
        target = staging_tables.find(connection, f"{shop.name}.{table}", "txsaga")
        return staging_tables.make(connection, target, ["id", "cents"], "none", way)


INSERT = RowsWay(RowsMode.INSERT)


def test_nobody_adds_to_what_is_sealed(shop: Shop) -> None:
    write = made(shop, INSERT)
    late = f"INSERT INTO {write.staging} (id, cents, txsaga_row) VALUES (1, 1, 0)"
    shop.run(late)
    with shop.open() as connection:
        staging_tables.seal(connection, write)
    with pytest.raises(StoreError, match="txsaga_sealed"):
        shop.run(late.replace(", txsaga_row", "").replace(", 0", ""))


@pytest.mark.rule("R4")
def test_a_task_that_wrote_twice_is_found(shop: Shop) -> None:
    write = made(shop, INSERT)
    shop.run(f"INSERT INTO {write.staging} VALUES (1, 1, 8589934592), (1, 1, 8589934592)")
    with pytest.raises(ColumnsDiffer, match="twice"), shop.open() as connection:
        staging_tables.seal(connection, write)


def test_a_record_alone_makes_nobody_touch_a_table(shop: Shop) -> None:
    write = made(shop, RowsWay(RowsMode.REPLACE), "price")
    forged = RowsWrite.read({**write.payload(), "target": f'"{shop.name}".sale'})
    with pytest.raises(EffectConflict, match="not staged for this"), shop.open() as connection:
        staging_tables.place(connection, forged)


def test_only_the_login_that_staged_places(shop: Shop) -> None:
    write, other = made(shop, INSERT), fresh_name("clerk")
    shop.run(f"CREATE ROLE {other}; ALTER TABLE {write.staging} OWNER TO {other}")
    try:
        with pytest.raises(InDoubt, match="login"), shop.open() as connection:
            staging_tables.place(connection, write)
    finally:
        shop.run(f"DROP OWNED BY {other}; DROP ROLE {other}")


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
                target = staging_tables.find(connection, f"{shop.name}.sale", "txsaga")
                connection.execute(text(f"SET LOCAL ROLE {name}"))
                with pytest.raises(error, match="INSERT cents") if error else nullcontext():
                    staging_tables.make(connection, target, columns, "none", INSERT)


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
