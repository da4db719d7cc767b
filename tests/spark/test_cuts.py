"""DataFrames of a cut keep showing its moment, with the Iceberg runtime and without."""

from typing import TYPE_CHECKING

import pytest

from tests.lake.books import LEDGER, POSTING, TUESDAY, Books, rows
from txsaga.errors import FormatRefused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.postgres


def check(spark: "SparkSession", books: Books) -> None:
    books.create(LEDGER, POSTING)
    books.append(1, 2)
    books.append(3, day=TUESDAY)
    with books.broker.cut(tables=[LEDGER, POSTING]) as cut:
        frames = cut.spark(spark)
    ledger, posting = frames.table(LEDGER), frames.table(POSTING)
    books.append(4)
    with books.producer.transaction() as tx:
        tx.table(LEDGER).overwrite(rows(5))
    assert sorted(row["id"] for row in ledger.collect()) == [1, 2, 3]
    assert ledger.where("day = date'2025-03-04'").count() == 1
    assert (posting.count(), posting.columns) == (0, ["id", "day", "amount", "note"])
    assert books.ids() == [5]


def test_frames_show_the_moment_of_their_cut(spark: "SparkSession", books: Books) -> None:
    check(spark, books)


def test_frames_of_the_catalog_show_it_too(runtime: "SparkSession", books: Books, catalog: str) -> None:
    check(runtime, books)


def test_deletes_beside_files_need_the_runtime(runtime: "SparkSession", books: Books, catalog: str) -> None:
    with books.producer.transaction() as tx:
        properties = {"write.delete.mode": "merge-on-read"}
        tx.table(LEDGER).create({"id": "long"}, properties=properties).append(rows(1, 2).select(["id"]))
    runtime.sql(f"DELETE FROM {catalog}.{LEDGER} WHERE id = 1")
    with books.broker.cut(tables=[LEDGER]) as cut:
        assert [row["id"] for row in cut.spark(runtime).table(LEDGER).collect()] == [2]
    runtime.conf.unset(f"spark.sql.catalog.{catalog}")
    with pytest.raises(FormatRefused, match="TXSAGA_SPARK_JARS"):
        cut.spark(runtime).table(LEDGER)
