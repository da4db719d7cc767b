"""Spark finds columns by field ids, but a table may have files without ids too."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.gate.test_imported_files import imported
from tests.lake.books import LEDGER, Books
from txsaga.gate import expect, stop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.postgres
EXPECTED = [("expect_column_values_to_be_unique", "id"), ("expect_column_values_to_not_be_null", "note")]


@pytest.fixture(autouse=True, scope="module")
def _no_process_is_left() -> Iterator[None]:
    yield
    stop()


@pytest.mark.parametrize("lists", [{}, {"tags": [["x"], []]}], ids=["flat", "with a list"])
def test_a_gate_reads_files_with_and_without_ids(
    spark: "SparkSession", books: Books, tmp_path: Path, lists: Mapping[str, list[list[str]]]
) -> None:
    rows = pa.table({"id": [1, 2], "day": pa.nulls(2, pa.date32()), "remark": ["a", "b"], **lists})
    with books.producer.transaction() as tx:
        tx.table(LEDGER).create(rows.schema)
    books.table().append(rows)
    with books.table().update_schema() as update:
        update.rename_column("remark", "note")
    (known,) = [task.file for task in books.table().scan().plan_files()]
    others = rows.rename_columns({"remark": "note"}).set_column(0, "id", pa.array([3, 1]))
    subject = imported(books, tmp_path / "imported.parquet", others)
    subject = replace(subject, files=(known, *subject.files), count=4)
    only = {"row_condition": "id > 0", "condition_parser": "spark"} if lists else {}  # may read any column
    of_all = [{"type": kind, "kwargs": {"column": column, **only}} for kind, column in EXPECTED]
    (cast,) = expect(of_all, engine="spark").judge(subject)
    assert cast.evidence["engine"] == "spark", cast.evidence
    assert cast.evidence["why"] == "expect_column_values_to_be_unique of id: 2 of 4 rows, like 1, 1"
