"""Rows for tables of the home database are in their place with the decision, whoever writes that, or nowhere."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import txsaga
from tests.lake.books import Books
from tests.lake.conftest import books, open_books, warehouse
from tests.lake.home_rows.home_shop import INSERT, Shop, made, sales, shop, told
from tests.scene.elsewhere import Elsewhere
from tests.services.databases import fresh_name
from tests.store.logins import logins
from txsaga.checkback.profile import CheckProfile
from txsaga.core.decision import LocalState
from txsaga.errors import ColumnsDiffer, ConfigError, EffectConflict, InDoubt, StoreError
from txsaga.lake import arrow_rows, home_rows_store
from txsaga.lake.home_rows import RowsMode, RowsWay, RowsWrite
from txsaga.store.partitions import SPAN
from txsaga.store.right import Right
from txsaga.testing.checking import check_once

__all__ = ["books", "open_books", "shop", "warehouse"]

pytestmark = pytest.mark.postgres

AT_ONCE = CheckProfile(min_age=timedelta(0), interval=timedelta(0))
MARCH = "FOR VALUES FROM ('2025-03-01') TO ('2025-04-01')"


class Died(Exception):
    """What stands for the end of a process."""


def visits(*ids: int, day: str = "2025-03-03") -> pa.Table:
    return pa.table({"id": ids, "day": [day] * len(ids)})


def test_rows_and_messages_are_there_together(books: Books, shop: Shop) -> None:
    with books.producer.transaction() as tx:
        assert tx.rows(f"{shop.name}.sale").insert(sales(1, 2).to_reader()) == 2
        assert tx.rows(f"{shop.name}.sale").insert(sales(3)) == 1
        tx.send("booked", b"3")
        assert shop.ids("sale") == []
    assert shop.ids("sale") == [1, 2, 3]
    assert shop.run("SELECT DISTINCT note, number > 0 FROM {s}.sale") == [("none", True)]
    assert (told(books), shop.staged()) == (1, [])
    trace = books.broker.kernel.store.overview.trace(tx.txid or 0)
    assert trace and {(each.mode, each.rows) for each in trace.written} == {("insert", 2), ("insert", 1)}


def test_what_rolls_back_is_nowhere_and_collected(books: Books, shop: Shop) -> None:
    with pytest.raises(Died), books.producer.transaction() as tx:
        tx.rows(f"{shop.name}.sale").insert(sales(1))
        assert books.broker.kernel.rows.collect() == []
        raise Died
    assert shop.ids("sale") == []
    assert len(books.broker.kernel.rows.collect(dry_run=True)) == len(shop.staged()) == 1
    assert len(books.broker.kernel.rows.collect()) == 1
    assert shop.staged() == []


@pytest.mark.parametrize("kind", [pa.Table.to_reader, lambda rows: rows, lambda rows: rows.to_batches()[0]])
def test_many_rows_are_written_in_pieces(
    books: Books, shop: Shop, kind: Callable[[pa.Table], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_rows, "PIECE", 2)
    with books.producer.transaction() as tx:
        assert tx.rows(f"{shop.name}.sale").insert(kind(sales(*range(5)))) == 5
    assert {len(piece) for piece in arrow_rows.pieces(kind(sales(*range(5))))} == {1, 2}
    assert shop.ids("sale") == [0, 1, 2, 3, 4]


@pytest.mark.rule("R13")
def test_what_was_staged_is_collected_when_its_transaction_is_forgotten(books: Books, shop: Shop) -> None:
    with pytest.raises(Died), books.producer.transaction() as tx:
        tx.rows(f"{shop.name}.sale").insert(sales(1))
        raise Died
    store = books.broker.kernel.store
    shop.run(f"SELECT setval('{store.namespace}.tx_seq', {SPAN})")
    assert store.log.drop_partitions() == 1
    assert len(books.broker.kernel.rows.collect()) == 1
    assert shop.staged() == []


@pytest.mark.rule("R4")
def test_what_a_login_does_not_see_is_not_taken_for_gone(books: Books, shop: Shop, home_url: str) -> None:
    with logins(home_url) as known, books.producer.transaction() as tx:
        url = known.url_with(Right.PRODUCER)
        known.grant(Right.PRODUCER, known.new(), "bank")
        tx.rows(f"{shop.name}.sale").insert(sales(1))
        (staged,) = shop.staged()
        shop.run(f"GRANT USAGE, CREATE ON SCHEMA {{s}} TO {known.made[0]}")
        shop.run(f"ALTER TABLE {{s}}.{staged} OWNER TO {known.made[0]}")
        with txsaga.connect(url, roles=False, answering=False, env={}) as stranger:
            assert stranger.kernel.store.overview.transaction(tx.txid or 0) is None
            assert stranger.kernel.rows.collect() == []
        shop.run(f"ALTER TABLE {{s}}.{staged} OWNER TO CURRENT_USER")
    assert shop.ids("sale") == [1]


@pytest.mark.parametrize("said", ["mine", "[1]", '{"transaction": 1}'])
def test_another_comment_stops_nobody(books: Books, shop: Shop, said: str) -> None:
    write = made(shop, INSERT)
    shop.run(
        f"COMMENT ON TABLE {write.staging} IS {home_rows_store.literal(said)}".replace("{", "{{").replace("}", "}}")
    )
    assert books.broker.kernel.rows.collect() == []
    with pytest.raises(EffectConflict, match="not staged for this"), shop.open() as connection:
        home_rows_store.place(connection, write)


def test_rows_that_a_key_forbids_roll_all_of_it_back(books: Books, shop: Shop) -> None:
    shop.run("INSERT INTO {s}.sale VALUES (2, 1, 'theirs')")
    with pytest.raises(EffectConflict, match="sale_pkey"), books.producer.transaction() as tx:
        tx.rows(f"{shop.name}.sale").insert(sales(1, 2))
        tx.send("booked", b"3")
    assert (shop.ids("sale"), told(books)) == ([2], 0)


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
    check_once(other.broker, AT_ONCE)
    done = answer is LocalState.COMMIT
    assert (shop.ids("sale"), shop.ids("price"), told(other)) == (([1], [7], 1) if done else ([], [1, 2], 0))


@pytest.mark.rule("R4")
def test_rows_of_a_dead_attempt_do_not_count(books: Books, shop: Shop) -> None:
    dead = Elsewhere(books.producer.transaction(key="job")).__enter__()
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


def test_our_own_tables_and_local_work_are_refused(books: Books) -> None:
    namespace = books.broker.kernel.store.namespace
    with books.producer.transaction(key="job") as tx, pytest.raises(ConfigError, match="own"):
        tx.rows(f"{namespace}.op").insert(sales(1))


def test_nobody_adds_to_what_is_sealed(shop: Shop) -> None:
    write = made(shop, INSERT)
    late = f"INSERT INTO {write.staging} (id, cents, txsaga_row) VALUES (1, 1, 0)"
    shop.run(late)
    with shop.open() as connection:
        home_rows_store.seal(connection, write)
    with pytest.raises(StoreError, match="txsaga_sealed"):
        shop.run(late.replace(", txsaga_row", "").replace(", 0", ""))


@pytest.mark.rule("R4")
def test_a_task_that_wrote_twice_is_found(shop: Shop) -> None:
    write = made(shop, INSERT)
    shop.run(f"INSERT INTO {write.staging} VALUES (1, 1, 8589934592), (1, 1, 8589934592)")
    with pytest.raises(ColumnsDiffer, match="twice"), shop.open() as connection:
        home_rows_store.seal(connection, write)


def test_a_record_alone_makes_nobody_touch_a_table(shop: Shop) -> None:
    write = made(shop, RowsWay(RowsMode.REPLACE), "price")
    forged = RowsWrite.read({**write.payload(), "target": f'"{shop.name}".sale'})
    with pytest.raises(EffectConflict, match="not staged for this"), shop.open() as connection:
        home_rows_store.place(connection, forged)


def test_only_the_login_that_staged_places(shop: Shop) -> None:
    write, other = made(shop, INSERT), fresh_name("clerk")
    shop.run(f"CREATE ROLE {other}; ALTER TABLE {write.staging} OWNER TO {other}")
    try:
        with pytest.raises(InDoubt, match="login"), shop.open() as connection:
            home_rows_store.place(connection, write)
    finally:
        shop.run(f"DROP OWNED BY {other}; DROP ROLE {other}")
