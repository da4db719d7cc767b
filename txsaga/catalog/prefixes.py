"""
What a prefix shows: the tables of a cut, which cannot be changed, or of a workspace, on its branches.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy import Engine

from txsaga.catalog.credentials import Credentials
from txsaga.catalog.files import MetadataFile, MetadataFiles
from txsaga.catalog.moments import CUT, KeptMoment
from txsaga.catalog.refusals import CatalogRefusal, missing
from txsaga.catalog.repeats import CommitScope
from txsaga.catalog.requests import Change, Json
from txsaga.catalog.store import CatalogStore, Listed
from txsaga.catalog.tables import CatalogTables, TableChange
from txsaga.iceberg.as_of import as_of, snapshot_of
from txsaga.lake.table import TableName

OWN_ACTIONS = {"add-snapshot", "set-snapshot-ref", "set-statistics", "set-partition-statistics"}
"""What a commit to a branch may do; everything else changes the table for all."""


class CatalogAt:
    """The tables of a moment, for requests that change no table for all."""

    def __init__(self, name: str, store: MomentStore, whole: CatalogTables, credentials: Credentials | None) -> None:
        self.name, self.store, self.views, self.credentials = name, store, NoViews(), credentials
        kind = CutTables if store.moment.kind == CUT else WorkspaceTables
        self.tables = kind(store, whole)


class MomentStore(CatalogStore):
    """The rows of the catalog, of which only the tables of a moment are shown."""

    def __init__(self, engine: Engine, namespace: str, files: MetadataFiles, moment: KeptMoment) -> None:
        super().__init__(engine, namespace)
        self._files, self.moment = files, moment

    def listed(self, catalog: str, namespace: str, kind: str, after: str, most: int | None) -> Listed:
        """Return a page of the tables of a namespace; a page may have fewer than there is room for."""
        found = super().listed(catalog, namespace, kind, after, most)
        names = [each for each in found.names if TableName(catalog, namespace, each) in self.moment.tables]
        return Listed(names, found.next)

    def pointer(self, name: TableName, kind: str) -> str:
        """Return the location of the metadata of a table; another table may have its name by now."""
        location, then = super().pointer(name, kind), self.moment.tables.get(name)
        if kind != "Table" or then is None or self._files.read(location).raw["table-uuid"] != then.uuid:
            raise missing(kind, name)
        return location


class MomentTables:
    """The tables of a moment."""

    def __init__(self, store: MomentStore, whole: CatalogTables) -> None:
        self._store, self._whole, self._moment = store, whole, store.moment

    def root(self, catalog: str, namespace: str) -> str:
        """Return the folder of a namespace."""
        return self._whole.root(catalog, namespace)


class CutTables(MomentTables):
    """The tables of a cut."""

    def load(self, name: TableName, scope: CommitScope) -> MetadataFile:
        """Return the metadata of a table as it was."""
        file, then = self._whole.files.read(self._store.pointer(name, "Table")), self._moment.tables[name]
        known = {each["snapshot-id"] for each in file.raw.get("snapshots") or ()}
        if then.snapshot is not None and then.snapshot not in known:
            raise missing("Table", f"{name}: its snapshot in {self._moment.ref} was expired")
        chosen = {"current-schema-id": then.schema, "default-spec-id": then.spec, "default-sort-order-id": then.order}
        return _shown(file, as_of(file.raw, then.snapshot, chosen))

    def commit(self, changes: Sequence[TableChange], scope: CommitScope) -> None:
        """Refuse a commit."""
        raise unsupported(f"{self._moment.ref} can't be changed")


class WorkspaceTables(MomentTables):
    """The tables of a workspace, as clients of its prefix see and change them."""

    def load(self, name: TableName, scope: CommitScope) -> MetadataFile:
        """Return the metadata of a table as it is on its branch."""
        self._store.pointer(name, "Table")
        file, ref = self._whole.load(name, scope), self._moment.ref
        if (head := snapshot_of(file.raw, ref)) is None:
            raise missing("Table", f"{name} has no branch {ref}: it was published, or dropped")
        return _shown(file, as_of(file.raw, head))

    def commit(self, changes: Sequence[TableChange], scope: CommitScope) -> None:
        """Commit to the branches of tables."""
        for each in changes:
            self.load(each.name, scope)
        asked = [TableChange(each.name, on_branch(each.change, self._moment.ref)) for each in changes]
        self._whole.commit(asked, scope)


class NoViews:
    """The views of a moment: none, since a view keeps no snapshot."""

    def load(self, name: TableName) -> MetadataFile:
        """Refuse a view."""
        raise missing("View", name)


def on_branch(change: Change, branch: str) -> Change:
    """Return a commit to main as one to a branch; refuse what would change the table for all."""
    if wrong := [each.get("action") for each in change.updates if each.get("action") not in OWN_ACTIONS]:
        raise unsupported(f"{wrong[0]} changes the table for all: do it outside of the workspace")
    requirements = [_moved(each, "ref", branch) for each in change.requirements]
    updates = [_moved(each, "ref-name", branch) for each in change.updates]
    return change.model_copy(update={"requirements": requirements, "updates": updates})


def unsupported(what: str) -> CatalogRefusal:
    """Refuse what can't be done here."""
    return CatalogRefusal(406, "UnsupportedOperationException", what)


def _moved(said: Json, key: str, branch: str) -> Json:
    if key not in said:
        return said
    if said[key] != "main":
        raise unsupported("a workspace has no other branches and tags")
    return {**said, key: branch}


def _shown(file: MetadataFile, raw: Json) -> MetadataFile:
    return MetadataFile(file.location, json.dumps(raw).encode(), raw)
