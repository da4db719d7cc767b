"""
The tables of a home catalog: created and staged ahead of the decision that publishes them.

The catalog is PyIceberg's SQL catalog on txsaga's own connections. Its rows are those of any Iceberg JDBC catalog, so
Spark opens it as one. Writes through it outside of a transaction (a table that is created or maintained by hand)
compare and set the pointer like all others.

Files are staged in `data/_txsaga/<transaction>/<part>-<attempt>-<number>/`, and their manifest next to the metadata
under a name with the same parts. No engine reads or deletes them, and the collector finds the transaction in the name.
If a writer stops anywhere in here, nothing becomes visible, and the collector deletes what it left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ValidationError
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, StaticTable
from pyiceberg.table.metadata import TableMetadataUtil, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import parse_transform
from pyiceberg.utils.config import Config
from sqlalchemy import Engine

from txsaga.errors import ConfigError, FormatRefused, LakeMissing, OutsideOverwrite, TableExists, UnknownTable
from txsaga.lake import differences, files, manifests, partition_values
from txsaga.lake.branches import TableBranches
from txsaga.lake.collecting import Collector, folders
from txsaga.lake.differences import TRANSACTION, ends, replaced
from txsaga.lake.effects_store import pointers_of
from txsaga.lake.files import mapping_of
from txsaga.lake.gates import Subject
from txsaga.lake.metadata import KEPT_SNAPSHOTS, Draft, Metadata, require_version
from txsaga.lake.publishing import Publisher, Turn
from txsaga.lake.storage import Storage, local
from txsaga.lake.table import TableName, TablePlace, TableStaging, TableWrite, WriteMode
from txsaga.store.connection import translating

if TYPE_CHECKING:
    from txsaga.store.store import Store


class HomeCatalog(SqlCatalog):
    """An ordinary PyIceberg catalog; other engines must open it under the same name."""

    def __init__(self, name: str, engine: Engine, **properties: str) -> None:
        MetastoreCatalog.__init__(self, name, **properties)  # SqlCatalog's would open connections of its own
        self.engine = engine
        self._schema_version = "v1"  # migrations created the tables

    def pointer(self, name: TableName) -> str | None:
        """Return the location of a table's newest metadata."""
        return self.pointers([name]).get(name)

    def pointers(self, names: Sequence[TableName]) -> Mapping[TableName, str]:
        """Return the locations of the newest metadata of several tables, in one query."""
        namespace = self.engine.get_execution_options()["schema_translate_map"][None]
        with translating(), self.engine.connect() as connection:  # after a ROLLBACK the driver would prepare all anew
            connection.execution_options(isolation_level="AUTOCOMMIT")
            return pointers_of(connection.exec_driver_sql, namespace, names)


OURS = {
    "format-version": "2",
    "commit.retry.num-retries": "20",  # for other engines, against busy writers
    "write.metadata.previous-versions-max": "20",
    KEPT_SNAPSHOTS: "50",
}
"""The default properties of a new table."""

MOST = 512 * 1024 * 1024
"""Bytes of files that are read into memory if they have delete files."""

Writer = Callable[[TableName, Any, object, str], "list[files.Staged]"]
"""Writes rows of some kind as files of a table into a folder."""


class Lake:
    """The tables of one catalog."""

    def __init__(
        self,
        catalog: str,
        engine: Engine,
        *,
        turn: Turn,
        warehouse: Callable[[], str],
        writer_of: Callable[[object], Writer | None],
    ) -> None:
        said = Config().get_catalog_config(catalog) or {}
        self.storage = Storage({key: str(value) for key, value in said.items()})
        self.catalog = HomeCatalog(catalog, engine, **self.storage.properties)
        self.publisher = Publisher(self.storage, self.catalog.pointers, turn)
        self.branches = TableBranches(self._metadata, self.storage)
        self._warehouse, self._writer_of = warehouse, writer_of

    def create(
        self, name: TableName, columns: object, *, partitions: Sequence[str], properties: Mapping[str, str]
    ) -> TableWrite:
        """Write the first metadata of a table that has no pointer yet."""
        if self.catalog.pointer(name) is not None:
            raise TableExists(f"table {name} already exists; write to it, or choose another name")
        require_version(name, properties.get("format-version", "2"))
        schema = schema_of(columns)
        location = f"{self._warehouse()}/{name.namespace}/{name.table}"
        metadata = new_table_metadata(
            schema, spec_of(schema, partitions), UNSORTED_SORT_ORDER, location, {**OURS, **properties}
        )
        raw = metadata.model_dump_json().encode()
        first = Metadata("", metadata.model_dump(mode="json"))
        place = Draft(first).next_location()
        self.storage.write(place, raw)
        self.storage.keep([place])
        return TableWrite(
            name=name,
            uuid=first.uuid,
            mode=WriteMode.CREATE,
            snapshot=0,
            manifest=None,
            schema=metadata.current_schema_id,
            spec=metadata.default_spec_id,
            created=place,
        )

    def parts(self, name: TableName, created: str | None, where: Mapping[str, object] | None) -> Sequence[str]:
        """Return the parts of a table that an overwrite reserves, by names that any two writers agree on."""
        metadata = self._metadata(name, created)
        return partition_values.parts(None if where is None else partition_values.named(name, metadata.parsed, where))

    def base(self, name: TableName, created: str | None) -> int | None:
        """Return the snapshot that an overwrite is based on: the table's newest."""
        return self._metadata(name, created).current_id

    def stage(self, name: TableName, rows: object, place: TablePlace, staging: TableStaging) -> TableWrite | None:
        """Write rows as files of a table and list them in one manifest; return None if there are none."""
        metadata = self._metadata(name, staging.created)
        require_version(name, metadata.version)
        parsed = metadata.parsed
        where = None if staging.where is None else partition_values.named(name, parsed, staging.where)
        stem = f"{place.transaction}/{place.part}-{place.attempt}-{place.number}"
        folder = f"{metadata.folder('data')}/_txsaga/{stem}"
        staged = self._written(name, metadata, rows, folder)
        found = files.described(name, parsed, staged, self.storage, self.storage.io(folder))
        for file in found:
            if not partition_values.matches(parsed, file, where, name):
                raise OutsideOverwrite(
                    f"some rows for {name} are outside the partitions that the overwrite replaces, and would be "
                    "duplicated: leave them out, or add their partitions"
                )
        if not found and staging.mode is WriteMode.APPEND:
            return None
        snapshot = parsed.new_snapshot_id()
        return TableWrite(
            name=name,
            uuid=metadata.uuid,
            mode=staging.mode,
            snapshot=snapshot,
            manifest=manifests.staged(self.storage, metadata, place, snapshot, found) if found else None,
            schema=parsed.current_schema_id,
            spec=parsed.default_spec_id,
            base=staging.base,
            where=where,
            **manifests.totals(found),
            created=staging.created,
            folder=folder,
            properties={**staging.properties, TRANSACTION: place.transaction},
        )

    def subject(self, write: TableWrite) -> Subject:
        """Return the staged rows of a write for a gate, and how many published rows they replace."""
        metadata = self._metadata(write.name, write.created)
        if write.branch is not None and write.mode is WriteMode.OVERWRITE:
            before, head = ends(metadata, write)
            published = None if before is None else int(before["summary"].get("total-records", 0)) or None
            return self.whole(write.name, metadata, head, published)
        staged, published = self._staged(metadata, write), self._published(metadata, write)
        return self.of_files(write.name, metadata, staged, write.rows, published)

    def of_files(
        self, name: TableName, metadata: Metadata, found: Iterable[DataFile], count: int, published: int | None = None
    ) -> Subject:
        """Return the rows of some files of a table for a gate."""
        return Subject(
            about=str(name),
            files=tuple(found),
            table=metadata.parsed,
            access=self.storage.properties,
            count=count,
            published=published,
        )

    def _staged(self, metadata: Metadata, write: TableWrite) -> Iterable[DataFile]:
        """Return the files that a write adds; for a branch they may be in no manifest of ours."""
        if write.manifest is None:
            return differences.between(self.storage, *ends(metadata, write)).added.values() if write.branch else ()
        manifest = manifests.read(write.manifest)
        return [each.data_file for each in manifest.fetch_manifest_entry(self.storage.io(manifest.manifest_path))]

    def whole(
        self, name: TableName, metadata: Metadata, head: Mapping[str, Any] | None, published: int | None = None
    ) -> Subject:
        """Return all rows of a table in one of its snapshots for a gate; files without deletes are not read here."""
        found = differences.between(self.storage, None, head)
        added = found.added.values()
        if head is None or not found.deletes:
            return self.of_files(name, metadata, added, sum(each.record_count for each in added), published)
        require_readable(name, found.deletes.values(), sum(each.file_size_in_bytes for each in added))
        raw = {**metadata.raw, "current-snapshot-id": head["snapshot-id"], "refs": {}}  # with the columns of now
        io = self.storage.io(raw["location"])
        rows = DataScan(table_metadata=TableMetadataUtil.parse_obj(raw), io=io).to_arrow()
        return Subject(about=str(name), rows=rows, count=rows.num_rows, published=published)

    def _published(self, metadata: Metadata, write: TableWrite) -> int | None:
        """Count the rows that an overwrite replaces, or that the previous append added."""
        if write.mode is WriteMode.OVERWRITE:
            return sum(file.record_count for file in replaced(self.storage, metadata, write).files) or None
        for number in metadata.lineage(metadata.current_id):
            snapshot = metadata.snapshot(number)
            if snapshot is not None and (added := snapshot["summary"].get("added-records")):
                return int(added)
        return None

    def static(self, location: str) -> Any:  # a StaticTable, whose options have no types
        """Return a table as its metadata describes it."""
        return StaticTable.from_metadata(location, self.storage.properties)

    def collect(self, store: Store, refused_before: datetime, *, dry_run: bool) -> Sequence[str]:
        """Delete what was staged and will never be published."""
        collector = Collector(store, self.storage, refused_before)
        dropped = collector.drop_branches(self.branches, self._names(), dry_run=dry_run)
        return [*dropped, *collector.collect(self._places(), dry_run=dry_run)]

    def _names(self) -> Iterator[TableName]:
        for namespace in self.catalog.list_namespaces():
            for name in self.catalog.list_tables(namespace):
                yield TableName(self.catalog.name, ".".join(name[:-1]), name[-1])

    def _places(self) -> Iterator[str]:
        """Yield the locations of tables: those of the catalog, and those that were never published."""
        for name in self._names():
            yield self.catalog.load_table((*name.namespace.split("."), name.table)).location()
        with suppress(LakeMissing):
            root = local(self._warehouse())
            if root is not None:  # folders that can't be read are left out
                yield from (f"file://{path}" for path in sorted(root.glob("*/*")) if path.is_dir())
                return
            for namespace in folders(self.storage, self._warehouse()):
                yield from folders(self.storage, namespace)

    def _metadata(self, name: TableName, created: str | None = None) -> Metadata:
        location = created or self.catalog.pointer(name)
        if location is None:
            raise UnknownTable(str(name))
        return Metadata.load(self.storage, location)

    def _written(self, name: TableName, metadata: Metadata, rows: object, folder: str) -> list[files.Staged]:
        if isinstance(rows, pa.RecordBatch):
            rows = pa.Table.from_batches([rows])
        if isinstance(rows, pa.Table | pa.RecordBatchReader):
            return files.write(name, metadata.parsed, rows, self.storage, folder)
        writer = self._writer_of(rows)
        if writer is not None:
            return writer(name, metadata.parsed, rows, folder)
        raise ConfigError(
            f"{type(rows).__name__} can't be written to {name}; give an Arrow table or reader, or a Spark DataFrame"
        )


def require_readable(name: TableName, deletes: Iterable[DataFile], size: int) -> None:
    """Refuse what can't be read with its delete files: equality deletes, and more data than fits."""
    if size > MOST or any(each.content == DataFileContent.EQUALITY_DELETES for each in deletes):
        raise FormatRefused(
            f"{name} keeps its deletes by values, or has deletes in more than {MOST:,} bytes, and "
            "gates can't read them; let the table copy on write: ALTER TABLE … SET TBLPROPERTIES ('write.merge.mode'="
            "'copy-on-write', …), or rewrite it, or hand the gate rows: tx.check(…)"
        )


def schema_of(columns: object) -> Schema:
    """Read the columns of a table to be created."""
    if isinstance(columns, Mapping):
        return mapping_of(columns)
    if isinstance(columns, Schema | pa.Schema):
        return Catalog._convert_schema_if_needed(columns)
    raise ConfigError("give the columns as {'name': 'type'}, as an Arrow schema or as a schema of PyIceberg")


def spec_of(schema: Schema, partitions: Sequence[str]) -> PartitionSpec:
    """Read the partitioning of a table: columns, or transforms of one like bucket(16, id)."""
    fields = []
    for number, said in enumerate(partitions, 1000):
        head, opened, rest = said.partition("(")
        inside = [part.strip() for part in rest.rstrip(")").split(",")]
        column = inside[-1] if opened else said.strip()
        word = f"{head.strip()}[{inside[0]}]" if len(inside) > 1 else head.strip()
        try:
            source = schema.find_field(column)
        except ValueError as missing:
            raise ConfigError(f"a table can't be partitioned by {said!r}: there is no column {column!r}") from missing
        try:
            transform = parse_transform(word if opened else "identity")
        except (ValueError, ValidationError) as error:
            raise ConfigError(f"a table can't be partitioned by {said!r}: {error}") from error
        if not transform.can_transform(source.field_type):
            raise ConfigError(f"a table can't be partitioned by {said!r}: {column!r} is {source.field_type}")
        name = column if not opened else f"{column}_{head.strip()}"
        fields.append(PartitionField(source_id=source.field_id, field_id=number, transform=transform, name=name))
    return PartitionSpec(*fields) if fields else UNPARTITIONED_PARTITION_SPEC
