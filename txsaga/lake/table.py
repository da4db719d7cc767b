"""
Tables of the home catalog: their names, their branches, the writes of a transaction, the swap of their pointers.

A table is a pointer to its newest metadata file. A `TableWrite` records a prepared write: everything that is needed to
publish it without the process that staged it. If it were incomplete, only that process could commit.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from txsaga.errors import ConfigError, OtherCatalog, UnknownTransaction

TABLE_EFFECT = "table"
"""The kind of a home effect that swaps a table's pointer."""
ROWS_EFFECT = "rows"
"""The kind of a home effect that moves staged rows into a table of the home database."""


TOKEN = re.compile(r"[0-9a-f-]{36,80}\.[0-9a-f]{2,128}(?:\.[0-9a-f]{1,8}){4}")


class TableName(NamedTuple):
    """The name of a table: catalog, namespace (with dots, if it has levels) and table."""

    catalog: str
    namespace: str
    table: str

    def __str__(self) -> str:
        return f"{self.namespace}.{self.table}"


class Swap(NamedTuple):
    """The move of one pointer: from the expected metadata to the next; None is no such table."""

    name: TableName
    old: str | None
    new: str | None


class Effect(NamedTuple):
    """Something that the decision itself does in the home database, in whichever process decides (R2).

    It is part of a named contribution: only that of the attempt that won its part counts (R4).
    """

    kind: str
    part: int
    attempt: int
    payload: Mapping[str, object]


class BranchStart(NamedTuple):
    """The start of a branch of a table: another engine writes to it, and it is not read before the decision."""

    table: TableName
    branch: str
    uuid: str
    """The id of the table."""
    base: int | None
    """The published snapshot at that time."""
    first: int
    """The branch's first snapshot: the published one, or an empty one if there was none."""
    schema: int


class WriteMode(StrEnum):
    """What a write does to the existing rows."""

    CREATE = "create"
    APPEND = "append"
    OVERWRITE = "overwrite"
    CHANGE = "change"  # what an Iceberg client asks of the metadata
    DROP = "drop"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWrite:
    """A prepared write: stored files, listed in one manifest and invisible until the pointer moves."""

    name: TableName
    uuid: str
    """The id of the table: another table of the same name is not written to."""
    mode: WriteMode
    snapshot: int
    """The snapshot id, chosen in advance: a second try is recognised."""
    manifest: Mapping[str, object] | None
    """None if an overwrite adds no rows."""
    schema: int
    spec: int
    base: int | None = None
    """The snapshot that an overwrite is based on."""
    where: Mapping[str, Sequence[str | None]] | None = None
    """The partition values that an overwrite replaces; None: everything."""
    files: int = 0
    rows: int = 0
    size: int = 0
    created: str | None = None
    """The first metadata of a table that this transaction creates."""
    folder: str = ""
    """The folder of its staged files."""
    properties: Mapping[str, str] = field(default_factory=dict)
    branch: str | None = None
    """The branch that another engine wrote; `base` is then the snapshot published when it began."""
    head: int | None = None
    """The newest snapshot of the branch when it was recorded: this is published, even if more is written later."""
    rebase: bool = False
    """Whether its changes may be carried over to a table that has changed in other partitions since."""
    change: Mapping[str, Sequence[dict[str, Any]]] | None = None
    """The requirements and the updates of the metadata that an Iceberg client sent."""
    renames: str | None = None
    """The metadata that a table must still have for its old name to be dropped, as a part of its renaming."""

    def payload(self) -> dict[str, object]:
        """Return the record as JSON."""
        said = {each.name: getattr(self, each.name) for each in fields(self)}
        said |= {"name": list(self.name), "mode": self.mode.value}
        if self.branch is None:  # readable by versions without branches
            for name in ("branch", "head", "rebase"):
                del said[name]
        for name in ("change", "renames"):
            if said[name] is None:  # readable by versions without an open catalog
                del said[name]
        return said

    @classmethod
    def read(cls, payload: Mapping[str, object]) -> TableWrite:
        """Read the result of `payload`."""
        name, mode = payload["name"], payload["mode"]
        assert isinstance(name, list) and isinstance(mode, str)
        values: dict[str, object] = {**payload, "name": TableName(*name), "mode": WriteMode(mode)}
        return cls(**values)  # type: ignore[arg-type]  # written by this program


class TransactionToken(NamedTuple):
    """What lets other programs add to a contribution of an open transaction: its own, or that of a step."""

    transaction: str
    seal: str
    owner: int
    part: int
    attempt: int
    step: int  # 0: none

    def __repr__(self) -> str:
        return f"TransactionToken({self.transaction}, …)"

    def __str__(self) -> str:
        return ".".join([self.transaction, self.seal, *(f"{each:x}" for each in self[2:])])

    @classmethod
    def sealed(cls, transaction: str, secret: bytes, *numbers: int) -> TransactionToken:
        """Return the token of a contribution; its seal shows that nobody changed its numbers."""
        seal = hmac.new(secret, f"{transaction} {numbers}".encode(), hashlib.sha256).hexdigest()
        return cls(transaction, seal, *numbers)

    def is_sealed(self, secret: bytes) -> bool:
        """Return whether its numbers are those that it was made with."""
        return hmac.compare_digest(self.seal, self.sealed(self.transaction, secret, *self[2:]).seal)

    @classmethod
    def read(cls, text: str) -> TransactionToken:
        """Read a token."""
        if TOKEN.fullmatch(text) is None:
            raise UnknownTransaction(f"{text[:36]!r}… is no token of a transaction; give that of tx.token()")
        transaction, seal, *numbers = text.split(".")
        return cls(transaction, seal, *(int(each, 16) for each in numbers))


class TablePlace(NamedTuple):
    """The owner of a write: it names the staging folder, so that the collector finds the transaction."""

    transaction: str
    part: int
    attempt: int
    number: int


class TableStaging(NamedTuple):
    """How to write rows."""

    mode: WriteMode
    created: str | None = None
    where: Mapping[str, object] | None = None
    base: int | None = None
    properties: Mapping[str, str] = MappingProxyType({})


def read_name(catalog: str, said: str) -> TableName:
    """Parse a name given as [catalog.]namespace.table."""
    parts = said.split(".") if isinstance(said, str) else []
    if len(parts) not in (2, 3) or not all(part.isidentifier() for part in parts):
        raise ConfigError(f"{said!r} names no table; write namespace.table, in letters, digits and _")
    if len(parts) == 3 and parts[0] != catalog:
        raise OtherCatalog(
            f"table {said!r} is in catalog {parts[0]!r}, and one decision covers only tables of {catalog!r}; publish "
            "to it after the commit, or keep the table here"
        )
    return TableName(catalog, parts[-2], parts[-1])


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


BRANCH = re.compile(r"txsaga_([0-9a-f]{32}_[0-9a-f]+_[0-9a-f]+)_\d+_\d+_\d+")
MARK = "txsaga-branch"
"""The snapshot property in which another engine names the attempt that it wrote for."""
APPLICATION = "spark.app.id"
"""The snapshot property in which Spark names the application that wrote it."""


def branch_name(place: TablePlace) -> str:
    """Return the name of the branch of a place, in characters that every engine accepts.

    It contains the transaction, so that the collector knows which one to look up, and the attempt (R4): with one name
    for two attempts an abandoned driver would keep writing to a branch that another one publishes.
    """
    return f"txsaga_{place.transaction.replace('-', '_')}_{place.part}_{place.attempt}_{place.number}"


def transaction_of(branch: str) -> str | None:
    """Return the transaction that a branch was begun for; None if it is not a branch of txsaga."""
    found = BRANCH.fullmatch(branch)
    return None if found is None else found[1].replace("_", "-")


def mark_of(branch: str) -> str:
    """Return the mark of an attempt's snapshots: the branch name without its number."""
    return branch.rpartition("_")[0]
