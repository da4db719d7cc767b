"""
The open catalog of a store: its namespaces, tables and views.
"""

from __future__ import annotations

from txsaga.broker import Broker
from txsaga.catalog.credentials import chosen
from txsaga.catalog.cuts import CutStore, CutViews
from txsaga.catalog.files import MetadataFiles
from txsaga.catalog.store import CatalogStore
from txsaga.catalog.tables import CatalogTables
from txsaga.catalog.views import CatalogViews
from txsaga.catalog.workspaces import WorkspaceTables


class OpenCatalog:
    """What the routes serve."""

    def __init__(self, broker: Broker, credentials: str = "none") -> None:
        kernel, lake = broker.kernel, broker.kernel.tables.lake
        self.credentials = chosen(credentials, lake.storage.properties)
        self.name = lake.catalog.name
        self.store = CatalogStore(kernel.store.engine, kernel.store.namespace)
        files = MetadataFiles(lake.storage)
        self.tables = CatalogTables(broker, self.store, files)
        self.views = CatalogViews(self.store, files, self.tables.location)

    def at(self, ref: str) -> CatalogAt:
        """Return the catalog of a cut, or of a workspace."""
        return CatalogAt(self, ref)


class CatalogAt:
    """The tables that have a tag or a branch, as they are there: for requests that change no table for all."""

    def __init__(self, whole: OpenCatalog, ref: str) -> None:
        self.name, self.store, self.views = whole.name, CutStore(whole.store, whole.tables.files, ref), CutViews()
        self.tables, self.credentials = WorkspaceTables(self.store, whole.tables, ref), whole.credentials
