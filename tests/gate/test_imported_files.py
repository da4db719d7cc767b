"""Files that another program wrote have no field ids: their columns are found by the table's mapping of names."""

from datetime import date
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.typedef import Record

from tests.gate.conftest import IDS
from tests.lake.books import LEDGER, Books
from txsaga.gate import expect
from txsaga.lake.gates import Subject, together

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(120)]


def imported(books: Books, file: Path, rows: pa.Table, *values: object) -> Subject:
    """Write a file as any program does, and return it as a file of the ledger, in a partition."""
    pq.write_table(rows, file)
    table = books.table()
    with table.transaction() as tx:
        mapping = create_mapping_from_schema(table.schema())
        tx.set_properties({"schema.name-mapping.default": mapping.model_dump_json()})
    found = DataFile.from_args(file_path=f"file://{file}", file_format=FileFormat.PARQUET, partition=Record(*values))
    found.spec_id = table.spec().spec_id
    return Subject(about=LEDGER, table=table.metadata, files=(found,), count=rows.num_rows)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("decimal(12,2)", Decimal("1.50")),
        ("binary", b"\x00\xff"),
        ("uuid", UUID(int=7)),
        ("date", (date(2025, 3, 3) - date(1970, 1, 1)).days),
    ],
)
def test_a_column_that_only_the_partition_has_is_like_that_of_other_files(
    books: Books, tmp_path: Path, kind: str, value: object
) -> None:
    with books.producer.transaction() as tx:
        tx.table(LEDGER).create({"id": "long", "part": kind}, partitions=["part"])
    rows = pa.table({"id": [1]})
    whole = rows.append_column("part", pa.array([value], books.table().schema().as_arrow().field("part").type))
    lacking, having = imported(books, tmp_path / "a", rows, value), imported(books, tmp_path / "b", whole, value)
    (cast,) = expect([{**IDS, "kwargs": {"column": "part"}}]).judge(together(LEDGER, [lacking, having]))
    assert "unique of part: 2 of 2 rows" in str(cast.evidence["why"])
