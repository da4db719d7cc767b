"""
Ports of tables: effects and pointers in a ledger, and the lake that stages writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from txsaga.lake.cut import TableReader

if TYPE_CHECKING:
    from txsaga.lake.gates import Subject
    from txsaga.lake.table import BranchStart, Swap, TableName, TablePlace, TableStaging, TableWrite

NO_TIME = timedelta(0)


class BranchWriter(Protocol):
    """A session of another engine that writes to branches of tables."""

    @property
    def application(self) -> str:
        """The application id with which the engine marks everything it writes."""

    def require_able(self, name: TableName) -> None:
        """Refuse, before a branch is begun, a session that would write elsewhere than to the branch."""

    def open(self, start: BranchStart) -> None:
        """Make sure that the session sees a branch of ours, and mark its writes until `close`."""

    def close(self) -> None:
        """Restore the session."""

    def identifier(self, start: BranchStart) -> str:
        """Return the session's name for a branch."""

    def sql(self, statement: str, args: object) -> object:
        """Run a statement."""


class Tables(TableReader, Protocol):
    """The tables of the home catalog, and staging writes to them before a decision."""

    def home_url(self) -> str:
        """Return a URL of the store that other processes can reach."""

    def collect(self, *, dry_run: bool = False, keep_rejected: timedelta = NO_TIME) -> Sequence[str]:
        """Delete what was staged and will never be published; return its locations.

        What was voted down is kept for `keep_rejected`, by the store's clock.
        """

    def spark_settings(self) -> Mapping[str, str]:
        """Return the settings under which Spark, with the Iceberg runtime, opens the catalog."""

    def create(
        self, name: TableName, columns: object, *, partitions: Sequence[str], properties: Mapping[str, str]
    ) -> TableWrite:
        """Write the first metadata of a table that has no pointer yet."""

    def parts(self, name: TableName, created: str | None, where: Mapping[str, object] | None) -> Sequence[str]:
        """Return the parts of a table that an overwrite reserves, by names that any two writers agree on."""

    def base(self, name: TableName, created: str | None) -> int | None:
        """Return the snapshot that an overwrite is based on: the table's newest."""

    def stage(self, name: TableName, rows: object, place: TablePlace, staging: TableStaging) -> TableWrite | None:
        """Write rows as files of a table and list them in one manifest; return None if there are none.

        Rows that don't fit the table raise one clear error of `txsaga.errors`; nothing is left to publish.
        """

    def begin_branch(self, name: TableName, place: TablePlace, move: Callable[[Swap], None]) -> BranchStart:
        """Begin a branch with the published snapshot; `move` moves a pointer or raises `PointerMoved`."""

    def branch_writer(self, session: object) -> BranchWriter:
        """Return the branch writer of another engine's session."""

    def branched(
        self, start: BranchStart, place: TablePlace, *, rebase: bool, looked: bool, application: str | None
    ) -> TableWrite | None:
        """Return the record of what a branch contains now; None if nothing was written to it.

        If a statement looked for rows (`looked`), it is no append, even if it only added rows. Raise `TableMoved` if
        the branch is not the one that was begun, and one clear error if its session wrote outside it.
        """

    def subject(self, write: TableWrite) -> Subject:
        """Return the staged rows of a write for a gate, and how many published rows they replace."""

    def require_unmoved(self, write: TableWrite) -> None:
        """Raise `TableMoved` if an overwrite, or the changes of a branch, can no longer be published."""
