"""
The open catalog of a store: its namespaces, tables and views.
"""

from __future__ import annotations

from txsaga.broker import Broker
from txsaga.catalog.cuts import CutStore, CutTables, CutViews
from txsaga.catalog.files import MetadataFiles
from txsaga.catalog.store import CatalogStore
from txsaga.catalog.tables import CatalogTables
from txsaga.catalog.views import CatalogViews


class OpenCatalog:
    """What the routes serve."""

    def __init__(self, broker: Broker) -> None:
        kernel, lake = broker.kernel, broker.kernel.tables.lake
        self.name = lake.catalog.name
        self.store = CatalogStore(kernel.store.engine, kernel.store.namespace)
        self._files = files = MetadataFiles(lake.storage)
        self.tables = CatalogTables(broker, self.store, files)
        self.views = CatalogViews(self.store, files, self.tables.location)

    def cut(self, tag: str) -> CutCatalog:
        """Return the catalog of a cut."""
        return CutCatalog(self, self._files, tag)


class CutCatalog:
    """The catalog of a cut, for requests that change nothing."""

    def __init__(self, whole: OpenCatalog, files: MetadataFiles, tag: str) -> None:
        self.name, self.store = whole.name, CutStore(whole.store, files, tag)
        self.tables, self.views = CutTables(self.store, files, tag), CutViews()
