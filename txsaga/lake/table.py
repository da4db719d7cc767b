"""
Tables of the home catalog: their names, what a transaction writes into them, the swap of their pointers.

A table is a pointer to its newest metadata file. A `TableWrite` is the record of a prepared write: everything that
is needed to publish it without the process that staged it. If a record were incomplete, only its own
process could commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import NamedTuple

from txsaga.errors import ConfigError, OtherCatalog

TABLE_EFFECT = "table"
"""The kind of a home effect that swaps a table's pointer."""
ROWS_EFFECT = "rows"
"""The kind of one that puts staged rows of the home database in their place."""


class TableName(NamedTuple):
    """Where a table is found: the catalog, the namespace (with dots, if it has levels) and its name."""

    catalog: str
    namespace: str
    table: str

    def __str__(self) -> str:
        return f"{self.namespace}.{self.table}"


class Swap(NamedTuple):
    """One pointer: from the metadata that it must lead to (None: there must be no such table) to the next."""

    name: TableName
    old: str | None
    new: str


class Effect(NamedTuple):
    """Something that is done in the home database by the decision itself, whoever decides (R2).

    It is a named contribution: only that of the attempt that won its part counts (R4).
    """

    kind: str
    part: int
    attempt: int
    payload: Mapping[str, object]


class BranchStart(NamedTuple):
    """Where a branch of a table begins: another engine writes to it, and nobody looks before the decision."""

    table: TableName
    branch: str
    uuid: str
    """Of the table."""
    base: int | None
    """What was published then."""
    first: int
    """The snapshot that the branch begins with: that one, or an empty one where nothing was."""
    schema: int


class WriteMode(StrEnum):
    """What a write does with the rows that are there."""

    CREATE = "create"
    APPEND = "append"
    OVERWRITE = "overwrite"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWrite:
    """A prepared write: files that lie there and are named by one manifest, invisible until the pointer moves."""

    name: TableName
    uuid: str
    """Of the table: another one of the same name is not written to."""
    mode: WriteMode
    snapshot: int
    """Its number, given out before: a second try is recognised."""
    manifest: Mapping[str, object] | None
    """None where an overwrite leaves nothing."""
    schema: int
    spec: int
    base: int | None = None
    """What an overwrite has seen."""
    where: Mapping[str, Sequence[str | None]] | None = None
    """Of an overwrite: the values of partition fields that it replaces; None: everything."""
    files: int = 0
    rows: int = 0
    size: int = 0
    created: str | None = None
    """The first metadata of a table that comes to be with this transaction."""
    folder: str = ""
    """Where its files were staged."""
    properties: Mapping[str, str] = field(default_factory=dict)
    branch: str | None = None
    """Where another engine wrote it; then its base is what was published when the branch began."""
    head: int | None = None
    """The newest snapshot there when it was recorded: what is published, whatever is written there later."""
    rebase: bool = False
    """Whether what it changed may be carried onto a table that was changed in other partitions since."""

    def payload(self) -> dict[str, object]:
        """Write it as JSON keeps it."""
        said = {**asdict(self), "name": list(self.name), "mode": self.mode.value}
        if self.branch is None:  # as programs know it that know no branches
            for name in ("branch", "head", "rebase"):
                del said[name]
        return said

    @classmethod
    def read(cls, payload: Mapping[str, object]) -> TableWrite:
        """Read what `payload` wrote."""
        name, mode = payload["name"], payload["mode"]
        assert isinstance(name, list) and isinstance(mode, str)
        values: dict[str, object] = {**payload, "name": TableName(*name), "mode": WriteMode(mode)}
        return cls(**values)  # type: ignore[arg-type]  # written by this program


def read_name(catalog: str, said: str) -> TableName:
    """Read a name as [catalog.]namespace.table."""
    parts = said.split(".") if isinstance(said, str) else []
    if len(parts) not in (2, 3) or not all(part.isidentifier() for part in parts):
        raise ConfigError(f"{said!r} names no table; write namespace.table, in letters, digits and _")
    if len(parts) == 3 and parts[0] != catalog:
        raise OtherCatalog(
            f"table {said!r} lies in catalog {parts[0]!r}, and one decision reaches only the tables of {catalog!r}; "
            "publish to it behind the commit, or keep the table here"
        )
    return TableName(catalog, parts[-2], parts[-1])
