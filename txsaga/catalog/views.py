"""
Views of the open catalog: their metadata files, and one pointer for each.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

from txsaga.catalog.acts import CatalogActs
from txsaga.catalog.files import MetadataFile, MetadataFiles, metadata_location
from txsaga.catalog.repeats import CommitScope, Keyed
from txsaga.catalog.requests import Change, NewView
from txsaga.catalog.store import CatalogStore
from txsaga.catalog.tables import now
from txsaga.iceberg import view_metadata
from txsaga.lake.table import TableName


class CatalogViews:
    """The views of a catalog."""

    def __init__(
        self, store: CatalogStore, files: MetadataFiles, acts: CatalogActs, location_of: Callable[[TableName], str]
    ) -> None:
        self._store, self._files, self._acts, self._location_of = store, files, acts, location_of

    def load(self, name: TableName) -> MetadataFile:
        """Return the metadata of a view."""
        return self._files.read(self._store.pointer(name, "View"))

    def create(self, name: TableName, new: NewView, scope: CommitScope) -> MetadataFile:
        """Create a view."""
        request = new.model_dump(by_alias=True, exclude_none=True)
        raw = view_metadata.new_view(
            request, (new.location or self._location_of(name)).rstrip("/"), uuid=str(uuid4()), moment=now()
        )
        with self._files.of_one_commit() as created:
            created.append(metadata_location(raw, 0))

            def add(store: CatalogStore) -> None:
                store.require_free(name, "View")
                store.create_view(name, self._files.write(created[0], raw).location)

            self._acts.do(f"create view {name}", add, Keyed(scope, "create view", [*name], request))
        return self.load(name)

    def register(self, name: TableName, location: str, scope: CommitScope) -> MetadataFile:
        """Make a view of metadata that exists."""

        def add(store: CatalogStore) -> None:
            store.require_free(name, "View")
            store.create_view(name, self._files.of("view", location).location)

        self._acts.do(f"register view {name}", add, Keyed(scope, "register view", [*name], location))
        return self.load(name)

    def commit(self, name: TableName, change: Change, scope: CommitScope) -> MetadataFile:
        """Replace a view, or change its properties."""
        with self._files.of_one_commit() as created:

            def move(store: CatalogStore) -> None:
                base = self._files.read(store.locked_view(name))
                view_metadata.require(base.raw, change.requirements)
                raw = view_metadata.updated(base.raw, change.updates, moment=now())
                if raw != base.raw:
                    created.append(metadata_location(raw, len(raw["version-log"])))
                    store.move_view(name, self._files.write(created[0], raw).location)

            self._acts.do(f"change view {name}", move, Keyed(scope, "change view", [*name], change.model_dump()))
        return self.load(name)
