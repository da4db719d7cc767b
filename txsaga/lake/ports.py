"""
Tables: the rows of effects and pointers in a ledger, and the lake that stages writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import NamedTuple, Protocol

from txsaga.lake.cut import TableReader
from txsaga.lake.gates import Subject
from txsaga.lake.table import BranchStart, Effect, Swap, TableName, TableWrite, WriteMode

NO_TIME = timedelta(0)


class TableLedger(Protocol):
    """Effects of transactions and pointers of tables, inside one open database transaction."""

    def keep(self, txid: int, effect: Effect) -> None:
        """Keep what the decision of an undecided transaction shall do in the home database."""

    def effects(self, txid: int) -> Sequence[Effect]:
        """Return, in their order, the effects that count: those of the attempts that won their parts (R4)."""

    def pointer(self, name: TableName) -> str | None:
        """Return the newest metadata of a table; None when there is no such table."""

    def swap(self, swaps: Sequence[Swap]) -> None:
        """Move pointers, each from the metadata that it must lead to; `PointerMoved` when one does not."""

    def reserve_table(self, txid: int, name: TableName, parts: Sequence[str]) -> int | None:
        """Let only this undecided transaction overwrite parts of a table ('' is all of it).

        Return the undecided transaction that has one of them, or None when they are ours.
        """


class TablePlace(NamedTuple):
    """Whose write it is: names the folder of what is staged, so that whoever collects knows whom to ask."""

    transaction: str
    part: int
    attempt: int
    number: int


class TableStaging(NamedTuple):
    """How rows are to be written."""

    mode: WriteMode
    created: str | None = None
    where: Mapping[str, object] | None = None
    base: int | None = None
    properties: Mapping[str, str] = MappingProxyType({})


class BranchWriter(Protocol):
    """A session of another engine that writes to branches of tables."""

    @property
    def application(self) -> str:
        """What the engine names as the origin of everything it writes."""

    def require_able(self, name: TableName) -> None:
        """Refuse a session that would not write where it is told, before a branch is begun."""

    def open(self, start: BranchStart) -> None:
        """Make sure that the session sees a branch of ours, and mark what it writes until `close`."""

    def close(self) -> None:
        """Leave the session as it was."""

    def identifier(self, start: BranchStart) -> str:
        """Return what the session calls a branch."""

    def sql(self, statement: str, args: object) -> object:
        """Run a statement."""


class Tables(TableReader, Protocol):
    """The tables of the home catalog, and what writes into them before a decision."""

    def home_url(self) -> str:
        """Return a URL of the store that programs in other processes can reach."""

    def collect(self, *, dry_run: bool = False, keep_rejected: timedelta = NO_TIME) -> Sequence[str]:
        """Take away what was staged and will never be published; return where it lay.

        What somebody voted against stays for the time of `keep_rejected`, by the store's clock.
        """

    def spark_settings(self) -> Mapping[str, str]:
        """Return the settings under which Spark, with the Iceberg runtime, opens the catalog."""

    def create(
        self, name: TableName, columns: object, *, partitions: Sequence[str], properties: Mapping[str, str]
    ) -> TableWrite:
        """Write the first metadata of a table that no pointer leads to."""

    def parts(self, name: TableName, created: str | None, where: Mapping[str, object] | None) -> Sequence[str]:
        """Return the parts of a table that an overwrite takes, by names that any two writers agree on."""

    def base(self, name: TableName, created: str | None) -> int | None:
        """Return what an overwrite of a table has seen: its newest snapshot now."""

    def stage(self, name: TableName, rows: object, place: TablePlace, staging: TableStaging) -> TableWrite | None:
        """Write rows as files of a table and name them in one manifest; None when there is nothing to write.

        One clear error of `txsaga.errors` for what does not fit the table: then nothing is left to publish.
        """

    def begin_branch(self, name: TableName, place: TablePlace, move: Callable[[Swap], None]) -> BranchStart:
        """Give a table a branch that begins with what is published; `move` moves a pointer or raises `PointerMoved`."""

    def branch_writer(self, session: object) -> BranchWriter:
        """Return what writes to branches by a session of another engine."""

    def branched(
        self, start: BranchStart, place: TablePlace, *, rebase: bool, looked: bool, application: str | None
    ) -> TableWrite | None:
        """Return the record of what lies on a branch now; None when nothing was written there.

        Where a statement looked for rows it is no append, though rows were added and nothing else.
        `TableMoved` when the branch is not what it was begun as; one clear error where its session wrote past it.
        """

    def subject(self, write: TableWrite) -> Subject:
        """Return the staged rows of a write as a gate sees them, and how many are published in their place."""

    def require_unmoved(self, write: TableWrite) -> None:
        """Raise `TableMoved` when an overwrite, or what a branch changed, can't be published any more."""
