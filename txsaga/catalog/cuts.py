"""
Cuts that are kept: a tag of one name in every table, set by one decision on the snapshots of one moment.

Every engine keeps a tagged snapshot when it expires others, and can read it by name. The catalog also serves the tables
of a cut as a catalog of their own, which cannot be changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import NamedTuple

from txsaga.broker import Broker
from txsaga.catalog.files import MetadataFile, MetadataFiles
from txsaga.catalog.refusals import missing
from txsaga.catalog.repeats import CommitScope
from txsaga.catalog.requests import Json
from txsaga.catalog.store import SQL, CatalogStore, Listed
from txsaga.errors import ConfigError, InDoubt, OutcomeUnknown, TxSagaError
from txsaga.iceberg.as_of import as_of, snapshot_of
from txsaga.lake.cut import Cut
from txsaga.lake.metadata import Metadata
from txsaga.lake.table import TableName, TableWrite, WriteMode
from txsaga.store.connection import NamespaceStore

PREFIX = "cut-"
"""The beginning of the name of a cut's tag, and of the prefix under which it is served."""
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")
GROUP = "cuts"


class KeptCut(NamedTuple):
    """A cut under a name: the offsets and snapshots of its moment."""

    name: str
    tick: int
    heads: Mapping[str, Sequence[int]]
    """The end of each queue, by topic."""
    tables: Mapping[str, int]
    """The snapshot of each table that had rows."""
    who: str
    at: datetime
    expires: datetime | None


class KeptCuts(NamespaceStore):
    """The cuts that a store keeps."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker.kernel.store.engine, broker.kernel.store.namespace)
        self._broker, self._lake = broker, broker.kernel.tables.lake

    def keep(self, name: str, patterns: Sequence[str], *, lease: timedelta | None, who: str) -> KeptCut:
        """Keep a cut of all topics and of the tables that match; engines may expire it after its lease."""
        if NAME.fullmatch(name) is None:
            raise ConfigError(f"a cut can't be named {name!r}: write up to 100 small letters, digits, - and _")
        with self._broker.cut(tables=[str(each) for each in names_of(self._broker, patterns)]) as cut:
            pass  # what it read stays readable
        read = {table: Metadata.load(self._lake.storage, at) for table, at in cut.pointers.items()}
        read = {table: each for table, each in read.items() if each.current_id is not None}
        if patterns and not read:
            raise ConfigError(f"none of {', '.join(patterns)} is a table with rows; there is nothing to keep")
        self._add(name, cut, read, lease, who)
        try:
            self._change([_tagged(table, each, f"{PREFIX}{name}", lease) for table, each in read.items()], who)
        except (InDoubt, OutcomeUnknown):
            raise
        except TxSagaError:
            self._changed(SQL["release_cut"], name=name)
            raise
        return self.find(name)

    def list(self) -> Sequence[KeptCut]:
        """Return all, the oldest first."""
        return [KeptCut(*row) for row in self._rows(SQL["kept_cuts"], name=None)]

    def find(self, name: str) -> KeptCut:
        """Return one by its name."""
        if (row := self._row(SQL["kept_cuts"], name=name)) is None:
            raise ConfigError(f"there is no cut {name!r}; `txsaga cut list` shows all")
        return KeptCut(*row)

    def release(self, name: str, who: str) -> int:
        """Remove a cut and its tags; return of how many tables."""
        self.find(name)
        tag, pointers = f"{PREFIX}{name}", self._lake.catalog.pointers([*names_of(self._broker, ["*"])])
        read = {table: Metadata.load(self._lake.storage, at) for table, at in pointers.items()}
        gone = {"action": "remove-snapshot-ref", "ref-name": tag}
        tagged = {table: each for table, each in read.items() if snapshot_of(each.raw, tag) is not None}
        self._change([change_of(table, each, gone) for table, each in tagged.items()], who)
        self._changed(SQL["release_cut"], name=name)
        return len(tagged)

    def _add(self, name: str, cut: Cut, read: Mapping[TableName, Metadata], lease: timedelta | None, who: str) -> None:
        values = {
            "tick": cut.tick,
            "heads": json.dumps(cut.heads),
            "tables": json.dumps({str(table): each.current_id for table, each in read.items()}),
            "lease": None if lease is None else lease.total_seconds(),
        }
        if not self._changed(SQL["keep_cut"], name=name, who=who, **values):
            raise ConfigError(f"there is a cut {name!r}; choose another name, or release it first")

    def _change(self, writes: Sequence[TableWrite], who: str) -> None:
        if writes:
            with self._broker.producer(GROUP).transaction() as transaction:
                transaction.change(writes, who)


def names_of(broker: Broker, patterns: Iterable[str]) -> Iterator[TableName]:
    """Yield the tables whose names match a pattern such as sales.*."""
    catalog = broker.kernel.tables.lake.catalog
    for namespace in catalog.list_namespaces():
        for found in catalog.list_tables(namespace):
            name = TableName(catalog.name, ".".join(found[:-1]), found[-1])
            if any(fnmatchcase(str(name), each) for each in patterns):
                yield name


def _tagged(table: TableName, metadata: Metadata, tag: str, lease: timedelta | None) -> TableWrite:
    update = {"action": "set-snapshot-ref", "ref-name": tag, "type": "tag", "snapshot-id": metadata.current_id}
    kept = {} if lease is None else {"max-ref-age-ms": int(lease.total_seconds() * 1000)}
    return change_of(table, metadata, {**update, **kept})


def change_of(
    table: TableName, metadata: Metadata, *updates: Mapping[str, object], required: Sequence[Json] = ()
) -> TableWrite:
    """Return the write that makes updates of a table's metadata, if it is as required."""
    return TableWrite(
        name=table,
        uuid=metadata.uuid,
        mode=WriteMode.CHANGE,
        snapshot=0,
        manifest=None,
        schema=metadata.raw["current-schema-id"],
        spec=metadata.raw["default-spec-id"],
        change={"requirements": required, "updates": [*map(dict, updates)]},
    )


class CutStore(CatalogStore):
    """The rows of the catalog, of which only the tables of a cut are shown."""

    def __init__(self, store: CatalogStore, files: MetadataFiles, ref: str) -> None:
        self._engine, self._schema = store._engine, store._schema
        self._files, self._ref = files, ref

    def listed(self, catalog: str, namespace: str, kind: str, after: str, most: int | None) -> Listed:
        """Return a page of the tables of a namespace; a page may have fewer than there is room for."""
        found = super().listed(catalog, namespace, kind, after, most)
        names = [name for name in found.names if self._is_in(TableName(catalog, namespace, name))]
        return Listed(names, found.next)

    def pointer(self, name: TableName, kind: str) -> str:
        """Return the location of the metadata of a table."""
        location = super().pointer(name, kind)
        if kind != "Table" or snapshot_of(self._files.read(location).raw, self._ref) is None:
            raise missing(kind, name)
        return location

    def _is_in(self, name: TableName) -> bool:
        found = self.found(name)
        return (
            found is not None
            and found[0] == "TABLE"
            and snapshot_of(self._files.read(found[1]).raw, self._ref) is not None
        )


class CutTables:
    """The tables of a cut."""

    def __init__(self, store: CutStore, files: MetadataFiles, ref: str) -> None:
        self._store, self._files, self._ref = store, files, ref

    def load(self, name: TableName, scope: CommitScope) -> MetadataFile:
        """Return the metadata of a table as it was."""
        file = self._files.read(self._store.pointer(name, "Table"))
        snapshot = snapshot_of(file.raw, self._ref)
        assert snapshot is not None
        raw = as_of(file.raw, snapshot)
        return MetadataFile(f"{file.location}#{self._ref}", json.dumps(raw).encode(), raw)


class CutViews:
    """The views of a cut: none, since a view keeps no snapshot."""

    def load(self, name: TableName) -> MetadataFile:
        """Refuse a view."""
        raise missing("View", name)
