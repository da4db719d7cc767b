"""
What a step writes into its journal: statements that are done later, in one transaction with those of other steps.

They are kept when the step ends, with the row that says so: a step that dies leaves none. Each says how many rows it
is to change; without a number it must change at least one. A text is kept as it is and shown to people: what is
secret goes into parameters, which are never shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from txsaga.errors import ConfigError
from txsaga.model.arguments import check_kind
from txsaga.model.journal import require_journalled, written


class Entry(NamedTuple):
    """A statement, its parameters as they are kept, and how many rows it is to change."""

    text: str
    parameters: Mapping[str, object]
    rows: int | None


class Journal:
    """The journal of one step, while it is open."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def execute(self, text: str, parameters: Mapping[str, object] | None = None, *, rows: int | None = None) -> None:
        """Add a statement: it is done at the lane's commit or at the flow's end, and must change so many rows."""
        require_journalled(text)
        if parameters is not None:
            check_kind(parameters, Mapping, "the parameters", "write :name in the statement and give a mapping")
        if rows is not None and (not isinstance(rows, int) or isinstance(rows, bool) or rows < 0):
            raise ConfigError(f"rows is {rows!r}; give the number of rows that the statement changes, or leave it out")
        self._entries.append(Entry(text, written(parameters or {}), rows))

    def __len__(self) -> int:
        """Count what was written so far."""
        return len(self._entries)


def entries(journal: Journal) -> list[Entry]:
    """Return what a journal holds."""
    return journal._entries
