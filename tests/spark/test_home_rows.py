"""A DataFrame becomes rows of a table of the home database with its transaction, by Spark's own JDBC writer."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.lake.books import Books
from tests.lake.home_rows.home_shop import Shop, shop
from txsaga.errors import StoreError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["shop"]

pytestmark = pytest.mark.postgres
MARCH = "FOR VALUES FROM ('2025-03-01') TO ('2025-04-01')"


@pytest.fixture
def typed(shop: Shop) -> Iterator[Shop]:
    """Give a shop with a table of types that Spark lacks."""
    shop.run("CREATE TABLE {s}.order_of (id uuid PRIMARY KEY, said jsonb, paid numeric(12, 2), at timestamptz)")
    yield shop


def test_frames_are_inserted_attached_and_put_in_place(runtime: "SparkSession", books: Books, shop: Shop) -> None:
    sales = runtime.range(1000, numPartitions=3).selectExpr("cast(id AS int) AS id", "1 AS cents")
    visits = runtime.range(10).selectExpr("cast(id AS int) AS id", "date'2025-03-03' AS day")
    with books.producer.transaction(key="night") as tx:
        assert tx.rows(f"{shop.name}.sale").insert(sales) == 1000
        assert tx.rows(f"{shop.name}.visit").attach(visits, "visit_march", MARCH) == 10
        assert tx.rows(f"{shop.name}.price").replace(sales) == 1000
        assert (shop.ids("sale"), shop.ids("visit"), shop.ids("price")) == ([], [], [1, 2])
    assert shop.ids("sale") == shop.ids("price") == list(range(1000))
    assert shop.ids("visit") == list(range(10))
    assert shop.staged() == []


def test_texts_become_what_the_table_has(runtime: "SparkSession", books: Books, typed: Shop) -> None:
    words = ("uuid() AS id", "'{\"a\": 1}' AS said", "1.50 AS paid", "timestamp'2025-03-03 10:00' AS at")
    with books.producer.transaction() as tx:
        tx.rows(f"{typed.name}.order_of").insert(runtime.range(3).selectExpr(*words))
    assert typed.run("SELECT count(*), sum(paid)::text FROM {s}.order_of WHERE said ->> 'a' = '1'") == [(3, "4.50")]


def test_rows_that_a_check_forbids_are_refused_in_one_line(runtime: "SparkSession", books: Books, shop: Shop) -> None:
    bad = runtime.range(3).selectExpr("cast(id AS int) AS id", "-1 AS cents")
    with books.producer.transaction(key="job") as tx, pytest.raises(StoreError, match="sale_cents_check") as refused:
        tx.rows(f"{shop.name}.sale").insert(bad)
    assert "\n" not in str(refused.value)
    assert shop.staged() == []
