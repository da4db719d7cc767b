"""
The open catalog of a store: its namespaces, tables and views.
"""

from __future__ import annotations

from txsaga.broker import Broker
from txsaga.catalog.acts import CatalogActs
from txsaga.catalog.credentials import chosen
from txsaga.catalog.files import MetadataFiles
from txsaga.catalog.moments import CUT, WORKSPACE, Moments
from txsaga.catalog.prefixes import CatalogAt, MomentStore
from txsaga.catalog.refusals import CatalogRefusal
from txsaga.catalog.store import CatalogStore
from txsaga.catalog.tables import CatalogTables
from txsaga.catalog.views import CatalogViews
from txsaga.errors import ConfigError


class OpenCatalog:
    """What the routes serve."""

    def __init__(self, broker: Broker, credentials: str = "none") -> None:
        kernel, lake = broker.kernel, broker.kernel.tables.lake
        self.credentials = chosen(credentials, lake.storage.properties)
        self._broker, self.name = broker, lake.catalog.name
        self.store = CatalogStore(kernel.store.engine, kernel.store.namespace)
        files = MetadataFiles(lake.storage)
        self.tables = CatalogTables(broker, self.store, files)
        self.acts = CatalogActs(broker, self.store, self.tables)
        self.views = CatalogViews(self.store, files, self.acts, self.tables.location)

    def at(self, prefix: str) -> CatalogAt:
        """Return the catalog of a cut, or of a workspace."""
        kind, _, name = prefix.partition("-")
        try:
            if kind not in (CUT, WORKSPACE):
                raise ConfigError(f"there is no warehouse {prefix!r}")
            moment = Moments(self._broker, kind).find(name)
        except ConfigError as unknown:
            raise CatalogRefusal(404, "NoSuchWarehouseException", str(unknown)) from None
        kernel = self._broker.kernel
        store = MomentStore(kernel.store.engine, kernel.store.namespace, self.tables.files, moment)
        return CatalogAt(self.name, store, self.tables, self.credentials)
