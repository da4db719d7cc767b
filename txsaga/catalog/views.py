"""
Views of the open catalog: their metadata files, and one pointer for each.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

from txsaga.catalog.files import MetadataFile, MetadataFiles, metadata_location
from txsaga.catalog.refusals import conflict
from txsaga.catalog.requests import Change, NewView
from txsaga.catalog.store import CatalogStore
from txsaga.catalog.tables import now
from txsaga.iceberg import view_metadata
from txsaga.lake.table import TableName

TRIES = 20


class CatalogViews:
    """The views of a catalog."""

    def __init__(self, store: CatalogStore, files: MetadataFiles, location_of: Callable[[TableName], str]) -> None:
        self._store, self._files, self._location_of = store, files, location_of

    def load(self, name: TableName) -> MetadataFile:
        """Return the metadata of a view."""
        return self._files.read(self._store.pointer(name, "View"))

    def create(self, name: TableName, new: NewView) -> MetadataFile:
        """Create a view."""
        self._store.require_free(name, "View")
        request = new.model_dump(by_alias=True, exclude_none=True)
        raw = view_metadata.new_view(
            request, (new.location or self._location_of(name)).rstrip("/"), uuid=str(uuid4()), moment=now()
        )
        with self._files.of_one_commit() as created:
            created.append(metadata_location(raw, 0))
            first = self._files.write(created[0], raw)
            self._store.create_view(name, first.location)
        return first

    def register(self, name: TableName, location: str) -> MetadataFile:
        """Make a view of metadata that exists."""
        self._store.require_free(name, "View")
        found = self._files.read(location)
        self._store.create_view(name, location)
        return found

    def commit(self, name: TableName, change: Change) -> MetadataFile:
        """Replace a view, or change its properties."""
        for _ in range(TRIES):
            base = self.load(name)
            view_metadata.require(base.raw, change.requirements)
            raw = view_metadata.updated(base.raw, change.updates, moment=now())
            if raw == base.raw:
                return base
            after = self._files.write(metadata_location(raw, len(raw["version-log"])), raw)
            if self._store.move_view(name, base.location, after.location):
                return after
            self._files.remove(after.location)
        raise conflict(f"view {name} was changed {TRIES} times meanwhile; commit again")
