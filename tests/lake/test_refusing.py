"""What would be lost, changed or doubled without a word is refused while it is staged, and nothing is visible."""

from collections.abc import Callable
from datetime import date

import pyarrow as pa
import pytest

from tests.lake.books import COLUMNS, LEDGER, MONDAY, TUESDAY, Books, rows
from txsaga.errors import (
    ColumnsDiffer,
    ConfigError,
    FormatRefused,
    LakeMissing,
    NullRefused,
    OtherCatalog,
    OutsideOverwrite,
    TableExists,
    TxSagaError,
    TypeDiffers,
    UnknownTable,
)
from txsaga.messages.transaction import Transaction

pytestmark = pytest.mark.postgres


def without(column: str) -> pa.Table:
    return rows(1).drop_columns([column])


def changed(column: str, values: pa.Array) -> pa.Table:
    table = rows(1)
    return table.set_column(table.schema.get_field_index(column), column, values)


REFUSED: list[tuple[pa.Table, type[TxSagaError], str]] = [
    (without("amount"), ColumnsDiffer, "lack column 'amount'; add it, as NULL"),
    (without("day"), ColumnsDiffer, "lack 'day', by which it is partitioned"),
    (rows(1).append_column("extra", pa.array([1])), ColumnsDiffer, "no column 'extra'; leave it out"),
    (rows(1).append_column("id", pa.array([1])), ColumnsDiffer, "'id' more than once"),
    (
        changed("id", pa.array(["1"])),
        TypeDiffers,
        "'id' of the rows for bank.ledger is string, the table has long",
    ),
    (changed("id", pa.array([1.0])), TypeDiffers, "is double, the table has long"),
    (changed("id", pa.array([2**63], pa.uint64())), TypeDiffers, "does not fit"),
    (changed("day", pa.array([1], pa.int32())), TypeDiffers, "is int32, the table has date"),
    (changed("amount", pa.array([1], pa.int64())), TypeDiffers, r"the table has decimal\(12, 2\)"),
    (changed("id", pa.array([None], pa.int64())), NullRefused, "'id' of bank.ledger is required, and 1 rows"),
]


@pytest.mark.parametrize(("table", "error", "said"), REFUSED, ids=lambda value: getattr(value, "__name__", ""))
def test_rows_that_do_not_fit_are_refused(books: Books, table: pa.Table, error: type[TxSagaError], said: str) -> None:
    books.create()
    with pytest.raises(error, match=said), books.producer.transaction() as tx:
        tx.table(LEDGER).append(table)
    assert books.ids() == []


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), None, pa.uint32()])
def test_narrower_types_are_widened(books: Books, kind: pa.DataType | None) -> None:
    books.create()
    values = pa.array([7]).dictionary_encode() if kind is None else pa.array([7]).cast(kind)
    with books.producer.transaction() as tx:
        tx.table(LEDGER).append(changed("id", values))
    assert books.ids() == [7]


MISNAMED: list[tuple[Callable[[Transaction], object], type[TxSagaError], str]] = [
    (
        lambda tx: tx.table("bank.nowhere").append(rows(1)),
        UnknownTable,
        "table 'bank.nowhere' does not exist; create it",
    ),
    (lambda tx: tx.table("other.bank.ledger"), OtherCatalog, "in catalog 'other'"),
    (lambda tx: tx.table("ledger"), ConfigError, "write namespace.table"),
    (lambda tx: tx.table("bank.led ger"), ConfigError, "names no table"),
    (lambda tx: tx.table(LEDGER).create(COLUMNS), TableExists, "already exists"),
    (lambda tx: tx.table("bank.new").create({"id": "number"}), ConfigError, "number"),
    (lambda tx: tx.table("bank.new").create(COLUMNS, partitions=["none"]), ConfigError, "no column 'none'"),
    (lambda tx: tx.table("bank.new").create(COLUMNS, partitions=["day(id)"]), ConfigError, "'id' is long"),
    (lambda tx: tx.table("bank.new").create(COLUMNS, partitions=["bucket(x, id)"]), ConfigError, "bucket"),
    (lambda tx: tx.table("bank.new").create(COLUMNS, partitions=["soundex(note)"]), ConfigError, "soundex"),
    (lambda tx: tx.table("bank.new").create("id long"), ConfigError, "give the columns as"),
    (lambda tx: tx.table(LEDGER).append([{"id": 1}]), ConfigError, "list can't be written"),
    (
        lambda tx: tx.table(LEDGER).overwrite(rows(1), where={"note": "a"}),
        ConfigError,
        "partitioned by day, not by 'note'",
    ),
    (lambda tx: tx.table(LEDGER).overwrite(rows(1), where={"day": "soon"}), ConfigError, "not a value of a partition"),
    (lambda tx: tx.table(LEDGER).overwrite(rows(1), where={}), ConfigError, "names no partition"),
    (lambda tx: tx.table(LEDGER).overwrite(rows(1), where="day = 1"), ConfigError, "give values by partition"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(
    ("write", "error", "said"), MISNAMED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_what_is_asked_for_wrongly_is_refused(
    books: Books, write: Callable[[Transaction], object], error: type[TxSagaError], said: str
) -> None:
    books.create()
    with pytest.raises(error, match=said), books.producer.transaction() as tx:
        write(tx)
    assert books.ids() == []
    assert not books.is_there("bank.new")


def test_rows_outside_of_what_an_overwrite_replaces_are_refused(books: Books) -> None:
    books.create()
    books.append(1, day=TUESDAY)
    with pytest.raises(OutsideOverwrite, match="would be duplicated"), books.producer.transaction() as tx:
        tx.table(LEDGER).overwrite(pa.concat_tables([rows(2), rows(3, day=TUESDAY)]), where={"day": MONDAY})
    assert books.ids() == [1]


@pytest.mark.parametrize(("version", "remedy"), [("1", "'format-version'='2'"), ("3", "by Spark on a branch")])
def test_other_versions_of_the_format_are_refused(books: Books, version: str, remedy: str) -> None:
    with pytest.raises(FormatRefused, match=remedy), books.producer.transaction() as tx:
        tx.table(LEDGER).create(COLUMNS, properties={"format-version": version})
    assert not books.is_there(LEDGER)


def test_a_table_of_version_one_is_refused_when_it_is_written_to(books: Books) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    books.lake.catalog.create_namespace("bank")
    place = f"{books.lake.warehouse}/bank/ledger"
    books.lake.catalog.create_table(LEDGER, schema, location=place, properties={"format-version": "1"})
    with pytest.raises(FormatRefused, match="version 1"), books.producer.transaction() as tx:
        tx.table(LEDGER).append(pa.table({"id": [1]}))


def test_without_a_warehouse_nothing_can_be_created(home_url: str, books: Books) -> None:
    import txsaga

    with txsaga.connect(home_url, roles=False, answering=False, env={}) as broker:
        producer = broker.producer("bank", checker=lambda question: books.answer)
        with pytest.raises(LakeMissing, match="TXSAGA_WAREHOUSE"), producer.transaction() as tx:
            tx.table(LEDGER).create(COLUMNS)


def test_local_work_is_not_committed_beside_what_may_be_refused(books: Books) -> None:
    books.create()
    with pytest.raises(ConfigError, match="coordinated"), books.producer.transaction() as tx:
        tx.table(LEDGER).overwrite(rows(1), where={"day": date(2025, 3, 3)})
        with tx.local("anything"):
            pytest.fail("it was entered")


def test_a_write_behind_the_end_is_refused(books: Books) -> None:
    books.create()
    with books.producer.transaction() as tx:
        table = tx.table(LEDGER)
        tx.send("booked", b"")
    with pytest.raises(TxSagaError, match="write to a table"):
        table.append(rows(1))
