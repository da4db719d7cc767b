"""A DataFrame is staged as files of a table: every column, every value, and nothing that is visible."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.lake.books import COLUMNS, LEDGER, TUESDAY, Books, rows
from txsaga.core.decision import Decision
from txsaga.errors import ColumnsDiffer, FormatRefused, NullRefused, TxSagaError, TypeDiffers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.postgres

COPIES = ("day", "bucket(4, id)", "truncate(2, note)", "hour(at)", "month(seen)")
MORE = {**COLUMNS, "at": "timestamptz", "seen": "timestamp", "ok": "boolean", "blob": "binary"}


def sample() -> pa.Table:
    entries = [
        {"id": each, "note": note} for each, note in enumerate(["", "__HIVE_DEFAULT_PARTITION__", "a/b=c%", "ä"])
    ]
    table = pa.concat_tables([rows(*entries), rows({"id": 4, "note": None}, day=None), rows(5, day=TUESDAY)])
    moments = [datetime(1960, 1, 1, 23, 59, 59, 999999, UTC), None, *[datetime(2025, 1, 1, 0, 30, tzinfo=UTC)] * 4]
    table = table.append_column("at", pa.array(moments, pa.timestamp("us", tz="UTC")))
    plain = [each if each is None else each.replace(tzinfo=None) for each in moments]
    table = table.append_column("seen", pa.array(plain, pa.timestamp("us")))
    table = table.append_column("ok", pa.array([True, None, False, True, True, True]))
    return table.append_column("blob", pa.array([b"\x00", None, b"", b"1", b"2", b"3"], pa.binary()))


def frame_of(spark: "SparkSession", table: pa.Table) -> "DataFrame":
    """Make a DataFrame of Arrow rows; it is read in other zones than UTC too."""
    frame = spark.createDataFrame(table)
    return frame.withColumn("seen", frame["seen"].cast("timestamp_ntz"))


@pytest.mark.parametrize("partitions", [(), COPIES])
@pytest.mark.parametrize("zone", ["UTC", "Pacific/Apia"])
def test_every_value_comes_back_as_it_was(
    spark: "SparkSession", books: Books, partitions: tuple[str, ...], zone: str
) -> None:
    frame = frame_of(spark, sample())
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        with books.producer.transaction() as tx:
            tx.table(LEDGER).create(MORE, partitions=partitions).append(frame)
            assert not books.is_there(LEDGER)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    found = books.table().scan().to_arrow().sort_by("id")
    assert found.to_pylist() == sample().to_pylist()


def test_spark_and_arrow_part_rows_alike(spark: "SparkSession", books: Books) -> None:
    with books.producer.transaction() as tx:
        tx.table(LEDGER).create(MORE, partitions=COPIES).append(sample())
        tx.table("bank.spark").create(MORE, partitions=COPIES).append(frame_of(spark, sample()))
    ours, theirs = (books.table(name).inspect.partitions().to_pylist() for name in (LEDGER, "bank.spark"))
    assert counted(ours) == counted(theirs)


def counted(partitions: list[dict[str, object]]) -> list[tuple[str, object]]:
    return sorted((str(each["partition"]), each["record_count"]) for each in partitions)


def test_staged_files_are_pruned_by_what_they_are_partitioned_by(spark: "SparkSession", books: Books) -> None:
    with books.producer.transaction() as tx:
        tx.table(LEDGER).create(MORE, partitions=["day"]).append(frame_of(spark, sample()))
    plan = books.table().scan(row_filter="day = '2025-03-04'").plan_files()
    assert len(list(plan)) == 1


REFUSED: dict[str, tuple[Callable[["DataFrame"], "DataFrame"], type[TxSagaError]]] = {
    "missing column": (lambda f: f.drop("note"), ColumnsDiffer),
    "other column": (lambda f: f.withColumnRenamed("note", "memo"), ColumnsDiffer),
    "partition column dropped": (lambda f: f.drop("day"), ColumnsDiffer),
    "other type": (lambda f: f.withColumn("id", f["id"].cast("string")), TypeDiffers),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_frame_that_does_not_fit_is_refused(spark: "SparkSession", books: Books, case: str) -> None:
    books.create()
    change, error = REFUSED[case]
    with pytest.raises(error), books.producer.transaction() as tx:
        tx.table(LEDGER).append(change(spark.createDataFrame(rows(1, 2))))
    assert books.ids() == []


def test_null_in_a_required_column_is_refused(spark: "SparkSession", books: Books) -> None:
    books.create()
    frame = spark.createDataFrame(rows(1, 2)).selectExpr("if(id = 2, null, id) AS id", "day", "amount", "note")
    with pytest.raises(NullRefused, match="1 rows"), books.producer.transaction() as tx:
        tx.table(LEDGER).append(frame)
    assert books.ids() == []


def test_an_empty_frame_writes_nothing(spark: "SparkSession", books: Books) -> None:
    books.create()
    with books.producer.transaction() as tx:
        assert tx.table(LEDGER).append(spark.createDataFrame(rows(1)).where("id > 1")) is None


def test_a_stream_is_refused(spark: "SparkSession", books: Books) -> None:
    books.create()
    with pytest.raises(TxSagaError, match="foreachBatch"), books.producer.transaction() as tx:
        tx.table(LEDGER).append(spark.readStream.format("rate").load())


def test_narrower_types_are_widened(spark: "SparkSession", books: Books) -> None:
    books.create()
    frame = spark.createDataFrame(rows(7)).selectExpr("cast(id AS smallint) id", "day", "amount", "note")
    with books.producer.transaction() as tx:
        tx.table(LEDGER).append(frame.select("note", "amount", "day", "id"))
    assert books.ids() == [7]


def test_structs_keep_their_field_ids(spark: "SparkSession", books: Books) -> None:
    columns = pa.schema([("id", pa.int64()), ("who", pa.struct([("name", pa.string()), ("age", pa.int32())]))])
    given = pa.table({"id": [1], "who": [{"name": "anna", "age": 3}]}, columns)
    with books.producer.transaction() as tx:
        tx.table(LEDGER).create(columns).append(spark.createDataFrame(given))
    assert books.table().scan().to_arrow().to_pylist() == given.to_pylist()


def test_lists_are_refused_with_a_way_out(spark: "SparkSession", books: Books) -> None:
    columns = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))])
    given = pa.table({"id": [1], "tags": [["a"]]}, columns)
    with pytest.raises(FormatRefused, match="from Arrow"), books.producer.transaction() as tx:
        tx.table(LEDGER).create(columns).append(spark.createDataFrame(given))
    with books.producer.transaction() as tx:
        tx.table(LEDGER).create(columns).append(given)
    assert books.table().scan().to_arrow().to_pylist() == given.to_pylist()


def test_an_overwrite_by_spark_replaces_a_partition(spark: "SparkSession", books: Books) -> None:
    books.create()
    books.append(1, 2)
    books.append(3, day=TUESDAY)
    with books.producer.transaction() as tx:
        tx.table(LEDGER).overwrite(spark.createDataFrame(rows(4)), where={"day": rows(1).column("day")[0].as_py()})
    assert books.ids() == [3, 4]


def test_the_settings_of_the_session_are_its_own_again(spark: "SparkSession", books: Books) -> None:
    books.create()
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    try:
        with books.producer.transaction() as tx:
            tx.table(LEDGER).append(spark.createDataFrame(rows(1)))
        assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "INT96"
    finally:
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")


@pytest.mark.req("CARD-03")
def test_a_job_that_fails_half_way_publishes_nothing(spark: "SparkSession", books: Books) -> None:
    books.create()
    words = (
        "if(id = 90, raise_error('half way'), id) AS id",
        "date'2025-03-03' AS day",
        "1.00 AS amount",
        "'' AS note",
    )
    frame = spark.range(0, 100, numPartitions=4).selectExpr(*words)
    with pytest.raises(Exception, match="half way"), books.producer.transaction(key="job") as tx:
        tx.send("booked", b"1")
        tx.table(LEDGER).append(frame.selectExpr("id", "day", "cast(amount AS decimal(12,2)) amount", "note"))
    assert tx.decision is Decision.ROLLBACK
    assert books.ids() == []
    with books.broker.cut() as cut:
        assert not sum(cut.heads.get("booked", ()))
    books.lake.collect()
    assert not list(Path(books.lake.warehouse.removeprefix("file://")).rglob("_txsaga/*/*"))
