"""Programs for Spark: their transforms on a dozen rows, and all of each in a transaction or a step of a flow."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from spark_jobs import ledger, publish_table, reconcile
from tests.lake.books import LEDGER, Books, rows
from txsaga.consume.dispatcher import Dispatcher
from txsaga.errors import ConfigError, NotCarried
from txsaga.gate import expect, stop
from txsaga.spark import read, send
from txsaga.spark.job import Job, found

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.postgres, pytest.mark.req("CARD-03")]

Transfer = tuple[int, str, str, int]
TRANSFERS: list[Transfer] = [(1, "current", "mortgage", 2500), (2, "mortgage", "fees", 100), (3, "current", "fees", 1)]


@pytest.fixture(autouse=True, scope="module")
def _no_process_is_left() -> Iterator[None]:
    yield
    stop()


def said(spark: "SparkSession", *transfers: Transfer, queue: int = 0, first: int = 0) -> "DataFrame":
    bodies = [json.dumps(dict(zip(("id", "from", "to", "cents"), each, strict=True))) for each in transfers]
    data = [(queue, first + at, None, None, body.encode()) for at, body in enumerate(bodies)]
    return spark.createDataFrame(data, "queue int, offset long, key string, tag string, body binary")


def sent(books: Books, *transfers: Transfer) -> None:
    with books.producer.transaction() as tx:
        for each in transfers:
            tx.send("transfers", json.dumps(dict(zip(("id", "from", "to", "cents"), each, strict=True))).encode())
    while Dispatcher(books.broker.kernel).run_once():
        pass


def job(books: Books, spark: "SparkSession", transaction: object, **arguments: str) -> Job:
    return Job(broker=books.broker, spark=spark, transaction=transaction, arguments=arguments)  # type: ignore[arg-type]


def run(books: Books, spark: "SparkSession", program: object, **arguments: str) -> object:
    with books.producer.transaction() as tx:
        return program.run(job(books, spark, tx, **arguments))  # type: ignore[attr-defined]


def test_a_transfer_becomes_two_postings_that_come_to_nothing(spark: "SparkSession") -> None:
    found = ledger.postings(said(spark, *TRANSFERS))
    told = sorted((row["transfer"], row["account"], row["cents"]) for row in found.collect())
    assert told == [
        *((1, "current", -2500), (1, "mortgage", 2500)),
        *((2, "fees", 100), (2, "mortgage", -100)),
        *((3, "current", -1), (3, "fees", 1)),
    ]
    assert reconcile.total(found) == 0


def test_what_is_posted_already_is_not_posted_again(spark: "SparkSession") -> None:
    known = ledger.postings(said(spark, *TRANSFERS[:2]))
    assert [row["offset"] for row in ledger.unseen(said(spark, *TRANSFERS), known).collect()] == [2]


def test_accounts_that_differ_from_their_postings_are_found(spark: "SparkSession") -> None:
    postings = ledger.postings(said(spark, *TRANSFERS))
    kept = ledger.accounts(postings)
    assert reconcile.differences(postings, kept).count() == 0
    wrong = kept.where("account <> 'fees'").selectExpr("account", "cents + if(account = 'current', 1, 0) AS cents")
    told = {row["account"]: (row["posted"], row["kept"]) for row in reconcile.differences(postings, wrong).collect()}
    assert told == {"current": (-2501, -2500), "fees": (101, None)}


def test_rows_become_messages_with_a_key(spark: "SparkSession") -> None:
    frame = spark.createDataFrame([("a", 1), (None, 2)], "name string, `much more` long")
    told = [(row["key"], row["body"]) for row in publish_table.messages(frame, "much more").collect()]
    assert told == [("1", '{"name":"a","much more":1}'), ("2", '{"name":null,"much more":2}')]


def test_the_books_of_a_bank_are_kept_proved_and_published(spark: "SparkSession", books: Books) -> None:
    sent(books, *TRANSFERS[:2])
    assert run(books, spark, ledger, topic="transfers") == {"postings": 4, "accounts": 3}
    assert run(books, spark, ledger, topic="transfers") == {"postings": 0, "accounts": 3}
    sent(books, TRANSFERS[2])
    assert run(books, spark, ledger) == {"postings": 2, "accounts": 3}
    assert run(books, spark, reconcile) == {"accounts": 3, "postings": 6, "total": 0}
    query = "SELECT * FROM account WHERE cents > 0"
    run(books, spark, publish_table, topic="rich", table="bank.account", query=query, key="account")
    while Dispatcher(books.broker.kernel).run_once():
        pass
    bodies = {row["key"]: json.loads(bytes(row["body"])) for row in read(books.broker, spark, "rich").collect()}
    assert bodies["mortgage"] == {"account": "mortgage", "cents": 2400, "postings": 2} and len(bodies) == 2


def test_books_that_do_not_balance_are_told(spark: "SparkSession", books: Books) -> None:
    sent(books, *TRANSFERS)
    run(books, spark, ledger)
    with books.producer.transaction() as tx:
        wrong = spark.createDataFrame([("current", 5, 1)], "account string, cents long, postings long")
        tx.table(ledger.ACCOUNTS).append(wrong)
    with pytest.raises(reconcile.BooksDiffer, match="1 accounts differ from their postings: current: -2501 posted"):
        run(books, spark, reconcile)


def test_a_transfer_to_nobody_stops_at_the_gate(spark: "SparkSession", books: Books) -> None:
    sent(books, TRANSFERS[0], (4, "current", None, 7))  # type: ignore[arg-type]
    with pytest.raises(NotCarried, match="not_be_null of account: 1 of 4 rows"):
        run(books, spark, ledger)
    assert not books.is_there(ledger.POSTINGS)


def test_a_gate_reads_what_spark_staged_in_partitions(spark: "SparkSession", books: Books) -> None:
    books.create(LEDGER, partitions=("day", "bucket(2, id)"))
    unique = [{"type": "expect_column_values_to_be_unique", "kwargs": {"column": "id"}}]
    with books.producer.transaction() as tx:
        tx.table(LEDGER).append(spark.createDataFrame(rows(1, 2, 3)), gate=expect(unique))
    assert books.ids() == [1, 2, 3]


@pytest.mark.rule("R4")
def test_frames_of_a_step_count_when_it_is_done(spark: "SparkSession", books: Books) -> None:
    txid = books.producer.begin_flow(key="frames").txid
    books.broker.create_topic("orders", "transaction")
    frame = spark.range(10).selectExpr("concat('message ', id) AS body")
    with books.broker.flow(txid) as flow:
        with pytest.raises(ZeroDivisionError), flow.step("send"):
            send(books.broker, flow, "orders", frame)
            _ = 1 // 0
        with flow.step("send"):
            send(books.broker, flow, "orders", frame.limit(3))
            send(books.broker, flow, "orders", frame.limit(1))
        flow.end()
    while Dispatcher(books.broker.kernel).run_once():
        pass
    assert read(books.broker, spark, "orders").count() == 4


@pytest.mark.parametrize("name", ["nowhere.py", "spark_jobs/ledger.py:nothing", "no_such_module:run"])
def test_a_program_that_is_not_there_is_told_in_one_line(name: str) -> None:
    with pytest.raises(ConfigError):
        found(name)
