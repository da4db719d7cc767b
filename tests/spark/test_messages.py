"""DataFrames as half messages and back: visible with the decision, winning attempts alone, offsets exact."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.lake.books import LEDGER, Books, rows
from tests.scene.elsewhere import Elsewhere
from txsaga.consume.dispatcher import Dispatcher
from txsaga.errors import ColumnsDiffer, ConfigError, TypeDiffers
from txsaga.messages.transaction import Transaction
from txsaga.spark import Messages, each_batch, read, read_stream, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.postgres


def frame_of(spark: "SparkSession", count: int, start: int = 0) -> "DataFrame":
    words = ("concat('message ', id) AS body", "cast(id % 7 AS string) AS key", "if(id % 2 = 0, 'even', 'odd') AS tag")
    return spark.range(start, start + count, numPartitions=3).selectExpr(*words)


def bodies(frame: "DataFrame") -> list[str]:
    return sorted(bytes(row["body"]).decode() for row in frame.collect())


def told(books: Books) -> None:
    while Dispatcher(books.broker.kernel).run_once():
        pass


def test_a_frame_is_half_until_its_transaction_is_decided(spark: "SparkSession", books: Books) -> None:
    books.create()
    with books.producer.transaction(key="frame") as tx:
        send(books.broker, tx, "orders", frame_of(spark, 1000))
        send(books.broker, tx, "orders", frame_of(spark, 10, 1000))
        tx.send("orders", b"message last")
        tx.table(LEDGER).append(rows(1))
        told(books)
        assert read(books.broker, spark, "orders").count() == 0
    told(books)
    found = read(books.broker, spark, "orders")
    assert bodies(found) == sorted([f"message {id}" for id in range(1010)] + ["message last"])
    assert bodies(read(books.broker, spark, "orders", tag="even")) == sorted(f"message {n}" for n in range(0, 1010, 2))
    assert books.ids() == [1]


@pytest.mark.rule("R4")
def test_frames_of_a_dead_attempt_are_not_delivered(spark: "SparkSession", books: Books) -> None:
    dead = Elsewhere(books.producer.transaction(key="frame")).__enter__()
    send(books.broker, dead, "orders", frame_of(spark, 5))
    with books.producer.transaction(key="frame") as tx:
        send(books.broker, tx, "orders", frame_of(spark, 3, 100))
    told(books)
    assert bodies(read(books.broker, spark, "orders")) == ["message 100", "message 101", "message 102"]


def test_a_frame_of_an_exception_is_rolled_back(spark: "SparkSession", books: Books) -> None:
    with pytest.raises(ZeroDivisionError), books.producer.transaction() as tx:
        send(books.broker, tx, "orders", frame_of(spark, 5))
        raise ZeroDivisionError
    told(books)
    assert read(books.broker, spark, "orders").count() == 0


def test_a_stream_reads_every_message_once(spark: "SparkSession", books: Books, tmp_path: Path) -> None:
    def run() -> None:
        out = read_stream(books.broker, spark, "orders").writeStream.format("parquet")
        options = {"path": str(tmp_path / "out"), "checkpointLocation": str(tmp_path / "checkpoint")}
        out.options(**options).trigger(availableNow=True).start().awaitTermination(120)

    for start in (0, 50):
        with books.producer.transaction() as tx:
            send(books.broker, tx, "orders", frame_of(spark, 50, start))
        told(books)
        run()
        assert bodies(spark.read.parquet(str(tmp_path / "out"))) == sorted(f"message {id}" for id in range(start + 50))


@pytest.mark.rule("R4")
def test_a_batch_that_spark_repeats_is_written_once(spark: "SparkSession", books: Books, tmp_path: Path) -> None:
    books.create()
    asked: list[int] = []

    def write(tx: Transaction, frame: "DataFrame") -> None:
        asked.append(frame.count())
        send(books.broker, tx, "copies", frame.select("body"))
        tx.table(LEDGER).append(rows(len(asked)))
        if len(asked) == 1:
            raise ZeroDivisionError

    def run() -> None:
        out = read_stream(books.broker, spark, "orders").writeStream
        out = out.foreachBatch(each_batch(books.producer, "copies", write))
        out.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination(120)

    with books.producer.transaction() as tx:
        send(books.broker, tx, "orders", frame_of(spark, 5))
    told(books)
    with pytest.raises(Exception, match="ZeroDivisionError"):
        run()
    run()
    for end in (tmp_path / "commits").glob("*0*"):
        end.unlink()  # as if Spark had died before it wrote that down
    run()
    told(books)
    assert asked == [5, 5]
    assert bodies(read(books.broker, spark, "copies")) == [f"message {id}" for id in range(5)]
    assert books.ids() == [2]


@pytest.mark.parametrize(
    ("words", "error"),
    [(["'a' AS text"], ColumnsDiffer), (["'a' AS body", "1 AS more"], ColumnsDiffer), (["1 AS body"], TypeDiffers)],
    ids=str,
)
def test_rows_that_are_no_messages_are_refused(spark: "SparkSession", words: list[str], error: type[Exception]) -> None:
    spark.dataSource.register(Messages)
    with pytest.raises(Exception, match=error.__name__):
        spark.range(1).selectExpr(*words).write.format("txsaga").mode("append").save()


def test_messages_are_only_added(spark: "SparkSession") -> None:
    spark.dataSource.register(Messages)
    with pytest.raises(Exception, match=ConfigError.__name__):
        frame_of(spark, 1).write.format("txsaga").mode("overwrite").save()
