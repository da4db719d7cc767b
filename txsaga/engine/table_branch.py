"""
A branch of a table inside a transaction: any statement of another engine, visible with the decision.

    with tx.table("bank.ledger").branch(spark) as ledger:
        ledger.sql("MERGE INTO {table} t USING updates u ON t.id = u.id WHEN MATCHED THEN UPDATE SET *")
        frame.writeTo(ledger.identifier).append()

Leaving the inner block records what lies on the branch then: that is what the decision publishes, whoever decides (R2),
and never what is written there later. If a writer stops before that, its branch is nobody's, and is collected.
"""

from __future__ import annotations

import re
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from txsaga.engine import gates
from txsaga.errors import ConfigError, TransactionError

if TYPE_CHECKING:
    from txsaga.engine.table import TableWrites
    from txsaga.model.table import BranchStart, TableName, TableWrite
    from txsaga.ports.gates import Gate
    from txsaga.ports.tables import BranchWriter, Place

TABLE = "{table}"
ADDS = re.compile(r"(?:\s|--[^\r\n]*[\r\n]|/\*(?:(?!\*/).)*\*/)*INSERT\s+INTO\b", re.IGNORECASE | re.DOTALL)
"""A statement that adds rows, whatever comments it begins with. All others look for rows: a MERGE that found none adds
rows too, and its branch does not tell."""
ENTER = 'use it as `with tx.table("…").branch(spark) as ledger:`, and write inside that block'


class TableBranch:
    """A branch of one table, as a context manager."""

    def __init__(
        self, writes: TableWrites, name: TableName, writer: BranchWriter | None, *, gate: Gate | None, rebase: bool
    ) -> None:
        self._writes, self._writer, self._gate, self._rebase = writes, writer, gate, rebase
        self._begun: tuple[BranchStart, Place] | None = None
        self._looked = False
        self.name = name
        self.write: TableWrite | None = None

    @property
    def branch(self) -> str:
        """The name of the branch, for engines that take it by itself."""
        return self._start.branch

    @property
    def identifier(self) -> str:
        """What Spark calls the branch: for SQL, and for `DataFrame.writeTo`."""
        return self._of_spark.identifier(self._start)

    def sql(self, statement: str, args: object = None) -> Any:  # noqa: ANN401  # what Spark returns
        """Run a statement of Spark's, with the branch in the place of {table}."""
        if TABLE not in statement:
            raise ConfigError(f"this statement names no {TABLE}, where the branch belongs: MERGE INTO {TABLE} t …")
        writer, spoken = self._of_spark, statement.replace(TABLE, self.identifier)
        self._looked = self._looked or ADDS.match(statement) is None
        return writer.sql(spoken, args)

    def __enter__(self) -> Self:
        """Begin the branch with what is published now."""
        if self._begun is not None or self.write is not None:
            raise TransactionError(f"this branch of {self.name} was begun already; ask for another: branch(spark)")
        gates.warmed(self._gate)
        if self._writer is not None:
            self._writer.require_able(self.name)
        self._begun = self._writes.begin_branch(self.name)
        if self._writer is not None:
            try:
                self._writer.open(self._begun[0])
            except BaseException:
                self._leave()
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Record what lies there; after an error nothing of it counts."""
        assert self._begun is not None
        start, place = self._begun
        self._leave()
        if error is None:
            self.write = self._writes.record_branch(
                start, place, self._writer, rebase=self._rebase, looked=self._looked, gate=self._gate
            )

    def _leave(self) -> None:
        assert self._begun is not None
        self._writes.end_branch(self._begun[0])
        self._begun = None
        if self._writer is not None:
            self._writer.close()

    @property
    def _start(self) -> BranchStart:
        if self._begun is None:
            raise TransactionError(f"a branch of {self.name} is there inside its block alone; {ENTER}")
        return self._begun[0]

    @property
    def _of_spark(self) -> BranchWriter:
        if self._writer is None:
            raise ConfigError("this branch was begun without Spark; give the session: branch(spark)")
        return self._writer
