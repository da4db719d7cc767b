"""
Opening the lake of a home database on first use.

Until then neither PyIceberg nor Arrow is loaded: most processes never use a table. What is missing is reported in one
line, and a decision that needs it stays undecided here, so that another process can write it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, make_url, text

from txsaga.config import WAREHOUSE, Settings
from txsaga.embedded.server import EmbeddedServer
from txsaga.errors import ConfigError, InDoubt, LakeMissing
from txsaga.lake.home_rows_store import jdbc_address
from txsaga.lake.table import BranchWriter, Effect, TableName, read_name
from txsaga.messages.effects import Ready
from txsaga.store.connection import transaction
from txsaga.store.store import Store

if TYPE_CHECKING:
    from txsaga.lake.lake import HomeCatalog, Lake


logger = logging.getLogger("txsaga")

WRITERS = {"pyspark": "txsaga.spark.tables:write"}
"""The functions that write rows of another library as files of a table, by that library's package."""
BRANCH_WRITERS = {"pyspark": "txsaga.spark.branching:BranchSession"}
"""The classes that write to branches of tables, by the package of the session."""
FRAMES = "txsaga.spark.tables:Frames"
TURN = "SELECT pg_advisory_xact_lock(hashtextextended(:key, 0))"


class LakeOpener:
    """The tables of a home database, opened lazily, and the home effect of tables."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        warehouse: str | Path | None,
        *,
        embedded: bool,
        load: Callable[[str, str], Any],
    ) -> None:
        self._store, self._engine, self._namespace = store, store.engine, store.namespace
        self._settings, self._embedded, self._load = settings, embedded, load
        self._place = settings.warehouse if warehouse is None else WAREHOUSE.read("warehouse", str(warehouse))
        self._reported = False

    @property
    def warehouse(self) -> str:
        """The location of new tables."""
        if self._place is not None:
            return location_of(self._place)
        if not self._embedded:
            raise LakeMissing("set TXSAGA_WAREHOUSE to a folder or a URI for tables, or pass warehouse=…")
        return location_of(EmbeddedServer.from_env(self._settings.embedded).home / "warehouse")

    @cached_property
    def lake(self) -> Lake:
        """The tables."""
        try:
            from txsaga.lake.lake import Lake
        except ImportError as missing:
            raise LakeMissing(f"tables need PyIceberg and Arrow: {LakeMissing.INSTALL} ({missing})") from missing
        return Lake(
            self._settings.catalog,
            self._engine,
            turn=self._turn,
            warehouse=lambda: self.warehouse,
            writer_of=self._writer_of,
        )

    def _writer_of(self, rows: object) -> Any:
        said = WRITERS.get(type(rows).__module__.partition(".")[0])
        return None if said is None else self._load(said, "writer")

    @property
    def catalog(self) -> HomeCatalog:
        """The PyIceberg catalog."""
        return self.lake.catalog

    def make_ready(self, effects: Sequence[Effect], *, again: int) -> Ready:
        """Make the writes of one transaction ready."""
        try:
            publisher = self.lake.publisher
        except LakeMissing as missing:
            if not self._reported:  # log once that transactions wait for another process
                logger.error(
                    "transactions with tables stay undecided until another process publishes them: %s", missing
                )
            self._reported = True
            raise InDoubt(f"its tables can't be published from here: {missing}") from missing
        return publisher.make_ready(effects, again=again)

    def collect(self, *, dry_run: bool = False, keep_rejected: timedelta = timedelta(0)) -> Sequence[str]:
        """Delete what was staged and will never be published, except what was voted down recently."""
        with transaction(self._engine) as connection:  # the store's clock, which stamps the votes
            now: datetime = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
        return self.lake.collect(self._store, now - keep_rejected, dry_run=dry_run)

    def home_url(self) -> str:
        """Return a URL of the store that programs in other processes can reach."""
        url = reachable(self._store, self._settings).update_query_dict({"namespace": self._namespace})
        return url.render_as_string(hide_password=False)

    def spark_settings(self) -> Mapping[str, str]:
        """Return the settings under which Spark opens the catalog."""
        url = reachable(self._store, self._settings)
        address = jdbc_address(url, {"currentSchema": self._namespace})
        catalog = f"spark.sql.catalog.{self._settings.catalog}"
        return {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            catalog: "org.apache.iceberg.spark.SparkCatalog",
            f"{catalog}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            f"{catalog}.uri": address,
            f"{catalog}.jdbc.user": url.username or "",
            f"{catalog}.jdbc.password": url.password or "",
            f"{catalog}.jdbc.schema-version": "V1",
            f"{catalog}.warehouse": self.warehouse,
            f"{catalog}.cache-enabled": "false",
        }

    def name(self, said: str) -> TableName:
        """Parse a table name."""
        return read_name(self._settings.catalog, said)

    def scan(self, location: str, options: Mapping[str, object]) -> Any:
        """Open a scan of a table as its metadata describes it."""
        return self.lake.static(location).scan(**options)

    def snapshot(self, location: str) -> int | None:
        """Return the newest snapshot in the metadata of a table."""
        newest = self.lake.static(location).current_snapshot()
        return None if newest is None else int(newest.snapshot_id)

    def frames(self, spark: object, pointers: Mapping[TableName, str]) -> Any:
        """Return an object that makes DataFrames of tables as their metadata describes them."""
        return self._load(FRAMES, "reader")(spark, {name: self.lake.static(at) for name, at in pointers.items()})

    def branch_writer(self, session: object) -> BranchWriter:
        """Return the branch writer of a session."""
        said = BRANCH_WRITERS.get(type(session).__module__.partition(".")[0])
        if said is None:
            raise ConfigError(f"{type(session).__name__} writes to no branch; give a Spark session, or none")
        writer: BranchWriter = self._load(said, "writer")(session)
        return writer

    def _turn(self, names: Sequence[TableName]) -> ExitStack:
        """Wait until no other process of this store is retrying to make these tables ready."""
        with ExitStack() as turn:
            connection = turn.enter_context(transaction(self._engine))
            for name in names:
                connection.execute(text(TURN), {"key": "/".join(["publish", self._namespace, *name])})
            return turn.pop_all()


def location_of(said: str | Path) -> str:
    """Return a folder or URI as an absolute location that all engines read alike: symbolic links are resolved."""
    if isinstance(said, Path) or "://" not in said:
        return f"file://{os.path.realpath(said)}"
    return said.rstrip("/")


def reachable(store: Store, settings: Settings) -> URL:
    """Return an address of the home database for Java programs: TCP, not a socket."""
    url = store.engine.url
    if url.host and not url.host.startswith("/"):
        return url
    server = EmbeddedServer.from_env(settings.embedded).ensure()
    return make_url(server.url(str(url.database), driver="psycopg"))
