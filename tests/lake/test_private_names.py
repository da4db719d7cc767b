"""What is used of PyIceberg though it is not public is there, and does what it is used for."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import ManifestFile, read_manifest_list
from pyiceberg.schema import Schema
from sqlalchemy import create_engine

from tests.lake.books import LEDGER, MONDAY, TUESDAY, Books, rows
from txsaga.lake import manifests
from txsaga.lake.lake import HomeCatalog

pytestmark = pytest.mark.core


def test_an_arrow_schema_is_read_as_one_of_a_table() -> None:
    found = Catalog._convert_schema_if_needed(pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    assert isinstance(found, Schema) and found.find_field("id").required
    assert Catalog._convert_schema_if_needed(found) is found


def test_a_catalog_is_made_without_connections_of_its_own() -> None:
    assert issubclass(SqlCatalog, MetastoreCatalog)
    engine = create_engine("sqlite://")
    catalog = HomeCatalog("home", engine, warehouse="file:///nowhere")
    assert catalog.engine is engine and catalog.name == "home"
    assert catalog._schema_version == "v1" and catalog.properties["warehouse"] == "file:///nowhere"
    engine.dispose()


def fields(manifest: ManifestFile) -> list[object]:
    found = [manifest[at] for at in range(len(manifest)) if at != 13]
    summaries = [[each[at] for at in range(len(each))] for each in manifest.partitions or ()]
    return [*found, summaries]


@pytest.mark.postgres
def test_a_list_that_is_remembered_is_the_list_that_is_read(books: Books, warehouse: Path) -> None:
    books.create(LEDGER)
    for id in range(10):  # some of them are put together
        books.append(id, day=MONDAY if id % 2 else TUESDAY)
    with books.producer.transaction() as tx:
        tx.table(LEDGER).overwrite(rows(99), where={"day": MONDAY})
    table = books.table()
    for snapshot in table.metadata.snapshots:
        remembered = manifests._known[snapshot.manifest_list]
        written = list(read_manifest_list(table.io.new_input(snapshot.manifest_list)))
        assert [fields(each) for each in remembered] == [fields(each) for each in written]
