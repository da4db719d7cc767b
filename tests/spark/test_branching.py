"""Any statement of Spark on a branch of a table: all of it is published by our decision, or nothing of it."""

from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from tests.lake.books import COLUMNS, LEDGER, POSTING, TUESDAY, Books, rows
from tests.lake.branching import branches
from tests.lake.test_flows import Opinion
from txsaga.errors import ConfigError, FormatRefused, LakeMissing, NotCarried, OtherCatalog, TableMoved
from txsaga.gate import expect, stop
from txsaga.lake.table import WriteMode
from txsaga.spark.branching import MARKED
from txsaga.spark.job import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.postgres

ON_READ = {f"write.{kind}.mode": "merge-on-read" for kind in ("delete", "update", "merge")}
MERGE = """
MERGE INTO {table} t USING (SELECT * FROM VALUES (1, 11.00), (5, 5.00) AS u (id, amount)) u ON t.id = u.id
 WHEN MATCHED THEN UPDATE SET amount = u.amount
 WHEN NOT MATCHED THEN INSERT (id, day, amount, note) VALUES (u.id, date'2025-03-04', u.amount, 'new')"""


@pytest.fixture(autouse=True, scope="module")
def _no_process_is_left() -> Iterator[None]:
    yield
    stop()


def fill(books: Books, **properties: str) -> None:
    """Create the ledger with four rows in two partitions."""
    with books.producer.transaction() as tx:
        table = tx.table(LEDGER).create(COLUMNS, partitions=["day"], properties=properties)
        table.append(rows(*({"id": each, "amount": Decimal(each)} for each in (1, 2))))
        table.append(rows(*({"id": each, "amount": Decimal(each)} for each in (3, 4)), day=TUESDAY))


def summed(spark: "SparkSession", books: Books, catalog: str, name: str = LEDGER) -> tuple[int, Decimal]:
    """Count and sum up the published rows by PyIceberg and by Spark, which must agree."""
    amounts = [each for each in books.table(name).scan().to_arrow().column("amount").to_pylist() if each is not None]
    found = spark.sql(f"SELECT count(*), sum(amount) FROM {catalog}.{name}").collect()[0]
    assert (found[0], found[1] or 0) == (books.table(name).scan().to_arrow().num_rows, sum(amounts))
    return found[0], found[1]


@pytest.mark.req("RMQ-01", "CARD-03")
@pytest.mark.parametrize("properties", [{}, ON_READ], ids=["files written anew", "deletes beside files"])
def test_merge_delete_update_and_overwrite_are_one_with_the_rest(
    runtime: "SparkSession", books: Books, catalog: str, properties: dict[str, str]
) -> None:
    fill(books, **properties)
    books.create(POSTING)
    with books.producer.transaction(key="fix-1") as tx:
        with tx.table(LEDGER).branch(runtime) as ledger, tx.table(POSTING).branch(runtime) as posting:
            ledger.sql(MERGE)
            ledger.sql("DELETE FROM {table} WHERE id = 3")
            runtime.sql(f"UPDATE {ledger.identifier} SET note = 'x', amount = amount + 1 WHERE id = 2")
            frame = runtime.createDataFrame(rows({"id": 6, "amount": Decimal(6)}))
            frame.selectExpr("coalesce(id, 0) AS id", "day", "amount", "note").writeTo(posting.identifier).append()
            posting.sql("INSERT INTO {table} SELECT * FROM " + ledger.identifier + " WHERE id = 5")
            assert ledger.sql("SELECT count(*) FROM {table}").collect()[0][0] == 4
            assert summed(runtime, books, catalog) == (4, Decimal(10))
        tx.send("booked", b"1")
        assert summed(runtime, books, catalog) == (4, Decimal(10)) and books.ids(POSTING) == []
    assert books.ids() == [1, 2, 4, 5] and books.ids(POSTING) == [5, 6]
    assert summed(runtime, books, catalog) == (4, Decimal(11 + 3 + 4 + 5))
    assert summed(runtime, books, catalog, POSTING) == (2, Decimal(11))
    assert not branches(books) and not branches(books, POSTING)
    assert runtime.conf.get(MARKED, None) is None
    books.append(7)
    runtime.sql(f"DELETE FROM {catalog}.{LEDGER} WHERE id = 7")
    with books.producer.transaction() as tx:
        tx.table(LEDGER).overwrite(rows(8, day=TUESDAY), where={"day": TUESDAY})
    assert books.ids() == [1, 2, 8] and summed(runtime, books, catalog)[0] == 3


def test_what_carries_no_property_is_published_too(runtime: "SparkSession", books: Books, catalog: str) -> None:
    fill(books)
    with books.producer.transaction() as tx, tx.table(LEDGER).branch(runtime) as ledger:
        ledger.sql("DELETE FROM {table} WHERE day = date'2025-03-03'")
    assert books.ids() == [3, 4]
    with books.producer.transaction() as tx, tx.table(LEDGER).branch(runtime) as ledger:
        ledger.sql("TRUNCATE TABLE {table}")
        ledger.sql("INSERT INTO {table} VALUES (9, date'2025-03-04', 9.00, '')")
        ledger.sql("INSERT OVERWRITE {table} SELECT id + 1, day, amount, note FROM {table}")
    assert books.ids() == [10]


@pytest.mark.parametrize("properties", [{}, ON_READ], ids=["files written anew", "deletes beside files"])
def test_the_table_moves_while_spark_works(
    runtime: "SparkSession", books: Books, catalog: str, properties: dict[str, str]
) -> None:
    fill(books, **properties)
    with books.producer.transaction() as tx, tx.table(LEDGER).branch(runtime) as added:
        books.append(20)
        added.sql("INSERT INTO {table} VALUES (21, date'2025-03-04', 21.00, '')")
        added.sql("INSERT INTO {table} VALUES (22, date'2025-03-05', 22.00, '')")
    assert added.write is not None and added.write.mode is WriteMode.APPEND
    assert books.ids() == [1, 2, 3, 4, 20, 21, 22]
    with pytest.raises(TableMoved), books.producer.transaction() as tx, tx.table(LEDGER).branch(runtime) as changed:
        changed.sql("UPDATE {table} SET note = 'x' WHERE id = 1")
        books.append(23, day=TUESDAY)
    with books.producer.transaction() as tx:
        with tx.table(LEDGER).branch(runtime, rebase=True) as carried:
            carried.sql("UPDATE {table} SET amount = 100 WHERE id = 1")
            carried.sql("DELETE FROM {table} WHERE id = 2")
        books.append(24, day=TUESDAY)
    assert books.ids() == [1, 3, 4, 20, 21, 22, 23, 24]
    assert summed(runtime, books, catalog) == (8, Decimal(100 + 3 + 4 + 21 + 22))
    with pytest.raises(TableMoved, match="partition"), books.producer.transaction() as tx:
        with tx.table(LEDGER).branch(runtime, rebase=True) as met:
            met.sql("DELETE FROM {table} WHERE id = 3")
        books.append(25, day=TUESDAY)
    assert 3 in books.ids() and 25 in books.ids()


def test_a_merge_that_met_nothing_is_no_append(runtime: "SparkSession", books: Books, catalog: str) -> None:
    fill(books)
    upsert = MERGE.replace("(1, 11.00), ", "")
    with pytest.raises(TableMoved, match="the branch searches"), books.producer.transaction() as late:
        with late.table(LEDGER).branch(runtime) as second:
            second.sql(upsert)
        with books.producer.transaction() as tx, tx.table(LEDGER).branch(runtime) as first:
            first.sql(upsert)
    assert books.ids() == [1, 2, 3, 4, 5]


def test_version_three_is_published_as_it_is_or_not_at_all(runtime: "SparkSession", books: Books, catalog: str) -> None:
    table = f"{catalog}.{LEDGER}"
    runtime.sql(f"CREATE NAMESPACE {catalog}.bank")
    runtime.sql(
        f"CREATE TABLE {table} (id bigint NOT NULL, day date, amount decimal(12,2), note string) USING iceberg "
        "PARTITIONED BY (day) TBLPROPERTIES ('format-version'='3', 'write.delete.mode'='merge-on-read')"
    )
    gate = Opinion(yes=True)
    with books.producer.transaction() as tx, tx.table(LEDGER).branch(runtime, gate=gate) as ledger:
        ledger.sql("INSERT INTO {table} VALUES (1, date'2025-03-03', 1.00, ''), (2, date'2025-03-03', 2.00, '')")
        ledger.sql("INSERT INTO {table} VALUES (3, date'2025-03-04', 3.00, '')")
    assert books.ids() == [1, 2, 3] and gate.seen[0].count == 3 and len(gate.seen[0].files) == 2
    with books.producer.transaction() as tx, tx.table(LEDGER).branch(runtime) as ledger:
        ledger.sql("DELETE FROM {table} WHERE id = 2")
    assert books.ids() == [1, 3] and summed(runtime, books, catalog) == (2, Decimal(4))
    runtime.sql(f"INSERT INTO {table} VALUES (4, date'2025-03-04', 4.00, '')")
    numbers = [row[0] for row in runtime.sql(f"SELECT _row_id FROM {table}").collect()]
    assert len(set(numbers)) == 3
    with pytest.raises(TableMoved, match="version 3"), books.producer.transaction() as tx:
        with tx.table(LEDGER).branch(runtime) as ledger:
            ledger.sql("INSERT INTO {table} VALUES (5, date'2025-03-04', 5.00, '')")
        runtime.sql(f"DELETE FROM {table} WHERE id = 1")
    assert books.ids() == [3, 4]
    with pytest.raises(FormatRefused, match="by Spark on a branch"), books.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(6))


@pytest.mark.req("RMQ-92")
def test_a_job_that_is_late_publishes_nothing(runtime: "SparkSession", books: Books, catalog: str) -> None:
    fill(books)
    with books.producer.transaction() as tx:
        with tx.table(LEDGER).branch(runtime) as ledger:
            ledger.sql("DELETE FROM {table} WHERE id = 1")
            late = ledger.identifier
        runtime.sql(f"DELETE FROM {late} WHERE id = 2")
    assert books.ids() == [2, 3, 4]
    with pytest.raises(Exception, match="branch"):
        runtime.sql(f"DELETE FROM {late} WHERE id = 3")
    assert books.ids() == [2, 3, 4]


def test_a_gate_sees_what_would_be_published(runtime: "SparkSession", books: Books, catalog: str) -> None:
    fill(books)
    seldom = expect([{"type": "expect_column_values_to_be_between", "kwargs": {"column": "id", "max_value": 50}}])
    with books.producer.transaction() as tx, tx.table(LEDGER).branch(runtime, gate=seldom) as ledger:
        ledger.sql("UPDATE {table} SET id = 40 WHERE id = 1")
    with pytest.raises(NotCarried), books.producer.transaction() as tx:
        with tx.table(LEDGER).branch(runtime, gate=seldom) as ledger:
            ledger.sql("UPDATE {table} SET id = 60 WHERE id = 2")
    assert books.ids() == [2, 3, 4, 40]


@pytest.mark.parametrize("engine", ["pandas", "spark"])
def test_a_gate_finds_columns_that_have_other_names_in_files(
    runtime: "SparkSession", books: Books, catalog: str, engine: str
) -> None:
    with books.producer.transaction() as tx:
        tx.table(LEDGER).create({"1st": "long", "day": "date", "order-id": "long"}, partitions=["day"])
    with books.table().update_schema() as update:
        update.rename_column("1st", "first")
    unique = expect([{"type": "expect_column_values_to_be_unique", "kwargs": {"column": "order-id"}}], engine=engine)
    with books.producer.transaction() as tx, tx.table(LEDGER).branch(runtime, gate=unique) as ledger:
        ledger.sql("INSERT INTO {table} VALUES (1, date'2025-03-03', 1), (1, date'2025-03-04', 2)")
    (file, *_) = books.table().inspect.files().column("file_path").to_pylist()
    assert pq.read_schema(file.removeprefix("file://")).names[-1] == "order_x2Did"
    with pytest.raises(NotCarried, match="of order-id: 2 of 2 rows, like 3, 3"), books.producer.transaction() as tx:
        with tx.table(LEDGER).branch(runtime, gate=unique) as ledger:
            ledger.sql("INSERT INTO {table} VALUES (2, date'2025-03-03', 3), (3, date'2025-03-04', 3)")


def test_a_gate_sees_no_row_that_is_deleted_beside_its_file(
    runtime: "SparkSession", books: Books, catalog: str
) -> None:
    fill(books, **ON_READ)
    seen, unique = (
        Opinion(yes=True),
        expect([{"type": "expect_column_values_to_be_unique", "kwargs": {"column": "id"}}]),
    )
    with books.producer.transaction() as tx, tx.table(LEDGER).branch(runtime, gate=seen) as ledger:
        ledger.sql("UPDATE {table} SET note = 'x' WHERE id = 1")
        ledger.sql("DELETE FROM {table} WHERE id = 3")
    (subject,) = seen.seen
    assert sorted(subject.rows.column("id").to_pylist()) == [1, 2, 4]  # type: ignore[attr-defined]  # an Arrow table
    assert (subject.count, subject.published) == (3, 4)
    with books.producer.transaction() as tx, tx.table(LEDGER).branch(runtime, gate=unique) as ledger:
        ledger.sql("UPDATE {table} SET note = 'y' WHERE id = 2")
    with pytest.raises(NotCarried), books.producer.transaction() as tx:
        with tx.table(LEDGER).branch(runtime, gate=unique) as ledger:
            ledger.sql("UPDATE {table} SET id = 4 WHERE id = 2")
    txid = books.producer.begin_flow(key="night").txid
    with books.broker.flow(txid) as flow:
        with flow.step("fix"), Job(broker=books.broker, spark=runtime, transaction=flow).branch(LEDGER) as ledger:
            ledger.sql("DELETE FROM {table} WHERE id = 4")
        with flow.step("check"):
            assert flow.check_staged(LEDGER, seen).casts[0].yes
        flow.end()
    assert seen.seen[-1].count == 2 and books.ids() == [1, 2]


@pytest.mark.req("CARD-03")
def test_a_program_writes_on_a_branch_in_a_step_of_a_flow(runtime: "SparkSession", books: Books, catalog: str) -> None:
    fill(books)
    txid = books.producer.begin_flow(key="night").txid
    with books.broker.flow(txid) as flow:
        with pytest.raises(ZeroDivisionError), flow.step("fix"):
            job = Job(broker=books.broker, spark=runtime, transaction=flow)
            with job.branch(LEDGER) as ledger:
                ledger.sql("DELETE FROM {table}")
            _ = 1 // 0
        with flow.step("fix"):
            with Job(broker=books.broker, spark=runtime, transaction=flow).branch(LEDGER) as ledger:
                ledger.sql(MERGE)
        assert books.ids() == [1, 2, 3, 4]
        flow.end()
    assert books.ids() == [1, 2, 3, 4, 5]
    assert len(branches(books)) == 1 and len(books.lake.collect()) == 1


def test_a_session_that_would_write_elsewhere_is_refused_before_anything_is_begun(
    runtime: "SparkSession", books: Books, catalog: str
) -> None:
    fill(books)
    key, other = f"spark.sql.catalog.{catalog}", runtime.newSession()
    settings = {each: value for each, value in books.lake.spark_settings().items() if each.startswith(key)}

    def refused(kind: type[Exception], said: str) -> None:
        with pytest.raises(kind, match=said), books.producer.transaction() as tx:
            with tx.table(LEDGER).branch(other):
                pytest.fail("it was begun")

    refused(LakeMissing, "make jars")
    other.conf.set(key, "org.nowhere.SparkCatalog")
    refused(LakeMissing, "lacks Iceberg's runtime")
    elsewhere = runtime.newSession()
    place = books.lake.warehouse + "/elsewhere"
    for each, value in {key: settings[key], f"{key}.type": "hadoop", f"{key}.warehouse": place}.items():
        elsewhere.conf.set(each, value)
    other = elsewhere
    refused(OtherCatalog, "not the home catalog")
    elsewhere.sql(f"CREATE TABLE {catalog}.{LEDGER} (id bigint) USING iceberg")
    refused(OtherCatalog, "not the home catalog")


def test_what_leads_a_statement_elsewhere_is_refused(runtime: "SparkSession", books: Books, catalog: str) -> None:
    fill(books)
    runtime.conf.set("spark.wap.branch", "audit")
    try:
        with pytest.raises(ConfigError, match=r"spark\.conf\.unset"), books.producer.transaction() as tx:
            with tx.table(LEDGER).branch(runtime):
                pytest.fail("it was begun")
    finally:
        runtime.conf.unset("spark.wap.branch")
    with books.producer.transaction() as tx, tx.table(LEDGER).branch(runtime) as ledger:
        with pytest.raises(ConfigError, match="where the branch belongs"):
            ledger.sql(f"DELETE FROM {catalog}.{LEDGER}")
    assert books.ids() == [1, 2, 3, 4]
