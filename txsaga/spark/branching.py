"""
A Spark session that writes to a branch of a table: it must have the home catalog open, and not redirect writes.

Settings that would make it silently write to the table itself are refused before the branch is begun, and its writes
are marked, so that one outside the branch is detected. If the session dies, its branch is never published.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from txsaga.errors import ConfigError, LakeMissing, OtherCatalog
from txsaga.lake.table import APPLICATION, MARK, BranchStart, TableName, mark_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXTENSIONS = "IcebergSparkSessionExtensions"
WAP = ("spark.wap.branch", "spark.wap.id")
"""With one of these Spark writes elsewhere, or to main if the table does not support them."""
MARKED = f"spark.sql.iceberg.snapshot-property.{MARK}"
NO_CLASS = ("plugin class", "ClassNotFoundException")
BRING = (
    "bring the Iceberg runtime and the JDBC driver (`make jars`, TXSAGA_SPARK_JARS), and open the session by "
    "txsaga.spark.session(broker), or with txsaga.spark.catalog_settings(broker)"
)


class BranchSession:
    """One session."""

    def __init__(self, session: Any) -> None:
        self._spark: SparkSession = session
        self._before: str | None = None

    @property
    def application(self) -> str:
        """The id of the application that the session belongs to."""
        return self._said(APPLICATION) or ""

    def require_able(self, name: TableName) -> None:
        """Refuse a session that would write elsewhere than to the branch."""
        said = self._said(f"spark.sql.catalog.{name.catalog}")
        if said is None:
            raise LakeMissing(f"this Spark session does not have catalog {name.catalog!r} open; {BRING}")
        if EXTENSIONS not in (self._said("spark.sql.extensions") or ""):
            raise LakeMissing(f"this Spark session lacks Iceberg's extensions, which branches take; {BRING}")
        for key in WAP:
            if self._said(key):
                raise ConfigError(
                    f"{key} is set in this Spark session, which redirects writes from the branch; "
                    f"spark.conf.unset({key!r}), and name the branch itself"
                )
        try:
            _ = self._spark.table(quoted(name)).schema
        except Exception as error:
            if any(text in str(error) for text in NO_CLASS):
                reason = str(error).strip().partition("\n")[0]
                raise LakeMissing(f"this Spark session lacks Iceberg's runtime; {BRING} ({reason})") from error
            raise self._other(name) from error

    def open(self, start: BranchStart) -> None:
        """Make sure that the session sees a branch of ours, and mark its writes."""
        refs = self._spark.sql(f"SELECT snapshot_id FROM {quoted(start.table)}.refs WHERE name = '{start.branch}'")
        if [row[0] for row in refs.collect()] != [start.first]:
            raise self._other(start.table)
        self._before = self._said(MARKED)
        self._spark.conf.set(MARKED, mark_of(start.branch))

    def close(self) -> None:
        """Restore the session."""
        with suppress(Exception):  # the session may have stopped
            if self._before is None:
                self._spark.conf.unset(MARKED)
            else:
                self._spark.conf.set(MARKED, self._before)

    def identifier(self, start: BranchStart) -> str:
        """Return Spark's name of a branch."""
        return f"{quoted(start.table)}.`branch_{start.branch}`"

    def sql(self, statement: str, args: Any) -> object:
        """Run a statement."""
        return self._spark.sql(statement, args)

    def _said(self, key: str) -> str | None:
        return self._spark.conf.get(key, None)

    def _other(self, name: TableName) -> OtherCatalog:
        return OtherCatalog(
            f"catalog {name.catalog!r} of this Spark session is not the home catalog: it does not see the current "
            f"table {name}; open it with txsaga.spark.catalog_settings(broker)"
        )


def quoted(name: TableName) -> str:
    """Quote a name for Spark."""
    parts = (name.catalog, *name.namespace.split("."), name.table)
    return ".".join(f"`{part}`" for part in parts)
