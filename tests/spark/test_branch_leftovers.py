"""What is left of branches, beside Spark's own clean-up and many writers at once: nothing that is needed goes."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.lake.books import LEDGER, MONDAY, TUESDAY, Books
from tests.lake.branching import Refused, branches
from txsaga.errors import BranchMissed, TableMoved

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.postgres


def expire(spark: "SparkSession", catalog: str) -> None:
    """Let Spark delete whatever it takes for old."""
    spark.sql(
        f"CALL {catalog}.system.expire_snapshots(table => '{LEDGER}', retain_last => 1, "
        "older_than => timestamp_millis(unix_millis(now()) + 1000))"
    )


def data(warehouse: Path) -> set[Path]:
    return set((warehouse / "bank" / "ledger" / "data").rglob("*.parquet"))


def test_what_spark_cleans_up_is_what_nobody_will_publish(
    runtime: "SparkSession", books: Books, catalog: str, warehouse: Path
) -> None:
    books.create()
    books.append(1, 2)
    with books.producer.transaction() as tx:
        with tx.table(LEDGER).branch(runtime) as ledger:
            ledger.sql("INSERT INTO {table} VALUES (3, date'2025-03-03', 3.00, '')")
            ledger.sql("INSERT INTO {table} VALUES (4, date'2025-03-03', 4.00, '')")
        books.append(5, day=TUESDAY)
        expire(runtime, catalog)
    assert books.ids() == [1, 2, 3, 4, 5]
    with pytest.raises(Refused), books.producer.transaction() as tx, tx.table(LEDGER).branch(runtime) as ledger:
        ledger.sql("UPDATE {table} SET note = 'x'")
        raise Refused
    before = data(warehouse)
    assert len(books.lake.collect()) == 1 and not branches(books)
    assert data(warehouse) == before
    expire(runtime, catalog)
    assert data(warehouse) < before
    assert books.ids() == [1, 2, 3, 4, 5] and runtime.table(f"{catalog}.{LEDGER}").count() == 5


@pytest.mark.timeout(300)
def test_many_writers_at_once_lose_no_row(
    runtime: "SparkSession", books: Books, open_books: Callable[..., Books], catalog: str
) -> None:
    books.create()
    others, session = (open_books(), open_books()), runtime.newSession()
    for key, value in books.lake.spark_settings().items():
        if key.startswith("spark.sql.catalog."):
            session.conf.set(key, value)

    def by_spark() -> None:
        for id in range(100, 104):
            session.sql(f"INSERT INTO {catalog}.{LEDGER} VALUES ({id}, date'2025-03-03', 1.00, '')")

    def on_branches() -> None:
        for id in range(200, 204):
            with others[0].producer.transaction() as tx, tx.table(LEDGER).branch(runtime) as ledger:
                ledger.sql(f"INSERT INTO {{table}} VALUES ({id}, date'2025-03-04', 1.00, '')")

    def by_us() -> None:
        for id in range(300, 320):
            others[1].append(id, day=MONDAY)
            books.lake.collect()

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(each) for each in (by_spark, on_branches, by_us)]:
            done.result(timeout=240)
    assert books.ids() == [*range(100, 104), *range(200, 204), *range(300, 320)]
    assert runtime.sql(f"SELECT sum(id) FROM {catalog}.{LEDGER}").collect()[0][0] == sum(books.ids())
    assert not branches(books)


PAST = {
    "rows that are added": "INSERT INTO {main} VALUES (9, date'2025-03-04', 9.00, '')",
    "a whole partition that is deleted": "DELETE FROM {main} WHERE day = date'2025-03-03'",
    "all rows": "TRUNCATE TABLE {main}",
}


@pytest.mark.parametrize("what", PAST)
def test_a_statement_past_the_branch_is_found(runtime: "SparkSession", books: Books, catalog: str, what: str) -> None:
    books.create()
    books.append(1, 2)
    books.append(3, day=TUESDAY)
    marked = what == "rows that are added"
    kind = BranchMissed if marked else TableMoved
    with pytest.raises(kind, match="past its branch"), books.producer.transaction() as tx:
        with tx.table(LEDGER).branch(runtime) as ledger:
            runtime.sql(PAST[what].replace("{main}", f"{catalog}.{LEDGER}"))
            ledger.sql("INSERT INTO {table} VALUES (10, date'2025-03-04', 9.00, '')")
        pytest.fail("it was recorded")
    assert 10 not in books.ids()
