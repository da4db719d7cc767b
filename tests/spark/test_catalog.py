"""The real Spark catalog opens our tables as those of an ordinary Iceberg JDBC catalog, and we open its tables."""

from typing import TYPE_CHECKING

import pytest

from tests.lake.books import LEDGER, TUESDAY, Books, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.postgres


def test_spark_reads_and_writes_what_we_published(runtime: "SparkSession", books: Books, catalog: str) -> None:
    books.create()
    books.append(1, 2)
    books.append(3, day=TUESDAY)
    table = f"{catalog}.{LEDGER}"
    assert [row[0] for row in runtime.sql(f"SELECT id FROM {table} ORDER BY id").collect()] == [1, 2, 3]
    assert runtime.sql(f"SHOW TABLES IN {catalog}.bank").count() == 1
    runtime.sql(f"DELETE FROM {table} WHERE id = 2")
    runtime.sql(f"INSERT INTO {table} VALUES (4, date'2025-03-04', 1.5, 'spark')")
    assert books.ids() == [1, 3, 4]
    books.append(5)
    with books.producer.transaction() as tx:
        tx.table(LEDGER).overwrite(rows(6, day=TUESDAY), where={"day": TUESDAY})
    assert [row[0] for row in runtime.sql(f"SELECT id FROM {table} ORDER BY id").collect()] == [1, 5, 6]
    runtime.sql(f"MERGE INTO {table} t USING (SELECT 6 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET note = 'm'")
    assert books.ids() == [1, 5, 6]


def test_what_spark_staged_is_read_and_changed_by_it(runtime: "SparkSession", books: Books, catalog: str) -> None:
    books.create(partitions=("day", "bucket(4, id)", "truncate(1, note)"))
    with books.producer.transaction() as tx:
        tx.table(LEDGER).append(runtime.createDataFrame(rows(*range(20))))
        tx.table(LEDGER).append(rows(20, 21, day=TUESDAY))
    table = f"{catalog}.{LEDGER}"
    assert runtime.sql(f"SELECT count(*), sum(id) FROM {table}").collect()[0] == (22, 231)
    assert runtime.sql(f"SELECT count(*) FROM {table} WHERE day = date'2025-03-04'").collect()[0][0] == 2
    assert runtime.sql(f"SELECT id FROM {table} WHERE id = 7").count() == 1
    runtime.sql(f"UPDATE {table} SET note = 'x' WHERE id = 7")
    assert runtime.sql(f"SELECT count(*) FROM {table}.files").collect()[0][0] > 0
    assert sorted(books.ids()) == list(range(22))


def test_we_write_to_a_table_that_spark_made(runtime: "SparkSession", books: Books, catalog: str) -> None:
    runtime.sql(f"CREATE NAMESPACE {catalog}.shop")
    runtime.sql(
        f"CREATE TABLE {catalog}.shop.sale (id bigint NOT NULL, day date, amount decimal(12,2), note string) "
        "USING iceberg PARTITIONED BY (day, bucket(4, id))"
    )
    runtime.sql(f"INSERT INTO {catalog}.shop.sale VALUES (1, date'2025-03-03', 1, 'spark')")
    with books.producer.transaction() as tx:
        tx.table("shop.sale").append(rows(2, 3))
    assert runtime.sql(f"SELECT sum(id) FROM {catalog}.shop.sale").collect()[0][0] == 6
    assert books.ids("shop.sale") == [1, 2, 3]


def test_deletes_that_spark_keeps_beside_the_files_stay_deletes(
    runtime: "SparkSession", books: Books, catalog: str
) -> None:
    with books.producer.transaction() as tx:
        tx.table(LEDGER).create(
            {"id": "long not null", "day": "date", "amount": "decimal(12,2)", "note": "string"},
            properties={"write.delete.mode": "merge-on-read"},
        ).append(rows(1, 2, 3))
    table = f"{catalog}.{LEDGER}"
    runtime.sql(f"DELETE FROM {table} WHERE id = 2")
    books.append(4)
    assert books.ids() == [1, 3, 4]
    assert [row[0] for row in runtime.sql(f"SELECT id FROM {table} ORDER BY id").collect()] == [1, 3, 4]
    with books.producer.transaction() as tx:
        tx.table(LEDGER).overwrite(rows(2))
    assert books.ids() == [2]
    assert [row[0] for row in runtime.sql(f"SELECT id FROM {table}").collect()] == [2]


def test_what_is_staged_survives_sparks_own_clean_up(runtime: "SparkSession", books: Books, catalog: str) -> None:
    books.create()
    books.append(1)
    table = f"{catalog}.{LEDGER}"
    with books.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(2))
        found = runtime.sql(
            f"CALL {catalog}.system.remove_orphan_files(table => '{LEDGER}', "
            "older_than => timestamp_millis(unix_millis(now()) - 90000000), dry_run => true)"
        ).collect()
        assert not found
    assert books.ids() == [1, 2]
    assert runtime.sql(f"SELECT count(*) FROM {table}").collect()[0][0] == 2
