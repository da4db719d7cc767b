"""A DataFrame is appended to a directory of Parquet with its transaction."""

from collections.abc import Iterable
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

import pytest

from tests.lake.books import Books
from txsaga import Folder
from txsaga.errors import ColumnsDiffer, ConfigError, FormatRefused

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.postgres


@pytest.fixture
def reports(books: Books, tmp_path: Path) -> Path:
    """Give a folder that takes part in the books' transactions."""
    root = tmp_path / "reports"
    root.mkdir()
    books.broker.enlist("reports", Folder(root))
    return root


def read(spark: "SparkSession", reports: Path) -> "DataFrame":
    files = map(str, Folder(reports).files("sales"))
    return spark.read.option("basePath", str(reports / "sales")).parquet(*files)


def test_a_frame_is_appended_with_its_transaction(spark: "SparkSession", books: Books, reports: Path) -> None:
    frame = spark.range(10, numPartitions=3).selectExpr("id", "id % 2 AS half", "timestamp'2025-03-03 10:00' AS at")
    with books.producer.coordinated("reports") as tx, tx.on("reports") as folder:
        assert folder.append("sales", frame, partitions=["half"]) == 10
        assert not (reports / "sales").exists()
    found = read(spark, reports)
    assert sorted((row["id"], row["half"]) for row in found.collect()) == [(id, id % 2) for id in range(10)]
    assert found.exceptAll(frame.select(found.columns)).count() == 0
    assert not [path.name for path in reports.rglob("*") if path.name.endswith(".crc")]


def test_a_frame_of_an_exception_leaves_nothing(spark: "SparkSession", books: Books, reports: Path) -> None:
    with pytest.raises(ZeroDivisionError), books.producer.coordinated("reports") as tx:
        with tx.on("reports") as folder:
            folder.append("sales", spark.range(10))
        raise ZeroDivisionError
    assert [path.name for path in reports.iterdir()] == [".txsaga"]


def test_rows_that_lie_on_other_machines_are_refused(spark: "SparkSession", books: Books, reports: Path) -> None:
    own = reports / ".txsaga"

    def elsewhere(batches: "Iterable[RecordBatch]") -> "Iterable[RecordBatch]":
        """Take the file that this task writes away, as if the folder were another one here."""
        while not (attempts := list(own.glob("*/*/*/_temporary/0/_temporary/attempt_*/*.parquet"))):
            pass
        rmtree(attempts[0].parent)
        yield from batches

    frame = spark.range(10, numPartitions=1)
    with books.producer.coordinated("reports") as tx, tx.on("reports") as folder:
        with pytest.raises(ConfigError, match=r"wrote 10 rows, and 0 of them .* under the same path"):
            folder.append("sales", frame.mapInArrow(elsewhere, frame.schema))
        assert folder.append("sales", frame.where("id < 0")) == 0
    assert not (reports / "sales").exists()


def test_what_no_directory_can_take_is_refused(spark: "SparkSession", books: Books, reports: Path) -> None:
    with books.producer.coordinated("reports") as tx, tx.on("reports") as folder:
        with pytest.raises(FormatRefused, match="foreachBatch"):
            folder.append("sales", spark.readStream.format("rate").load())
        with pytest.raises(ColumnsDiffer, match="'day'"):
            folder.append("sales", spark.range(10), partitions=["day"])
        with pytest.raises(ColumnsDiffer, match="rename '_day'"):
            folder.append("sales", spark.range(10).selectExpr("id", "id AS _day"), partitions=["_day"])
    assert not (reports / "sales").exists()
