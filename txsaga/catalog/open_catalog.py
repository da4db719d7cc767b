"""
The open catalog of a store: its namespaces, tables and views.
"""

from __future__ import annotations

from txsaga.broker import Broker
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
        files = MetadataFiles(lake.storage)
        self.tables = CatalogTables(broker, self.store, files)
        self.views = CatalogViews(self.store, files, self.tables.location)
