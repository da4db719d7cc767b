"""
A journal: statements that are written down now and done later, all of one resource in one transaction.

A step of a flow keeps them when it ends, with the row that says so: a step that dies leaves none. A block does them
with its votes. Each says how many rows it is to change; without a number it must change at least one. A text is kept
as it is and shown to people: what is secret goes into parameters, which are never shown. What is written once the
journal is taken is refused: nobody would do it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import NamedTuple

from txsaga.errors import ConfigError, TransactionError
from txsaga.model.arguments import check_kind
from txsaga.model.journal import require_journalled, written


class Entry(NamedTuple):
    """A statement, its parameters as they are kept, and how many rows it is to change."""

    text: str
    parameters: Mapping[str, object]
    rows: int | None


class Journal:
    """The journal of one step, or of one resource in a block, while it is open."""

    def __init__(self, require_open: Callable[[], None] | None = None) -> None:
        self._require_open = require_open
        self._entries: list[Entry] = []
        self._taken, self._turn = False, Lock()

    def execute(self, text: str, parameters: Mapping[str, object] | None = None, *, rows: int | None = None) -> None:
        """Add a statement: it is done when the journal is, and must change so many rows."""
        require_journalled(text)
        if parameters is not None:
            check_kind(parameters, Mapping, "the parameters", "write :name in the statement and give a mapping")
        if rows is not None and (not isinstance(rows, int) or isinstance(rows, bool) or rows < 0):
            raise ConfigError(f"rows is {rows!r}; give the number of rows that the statement changes, or leave it out")
        entry = Entry(text, written(parameters) if parameters else {}, rows)
        if self._require_open is not None:
            self._require_open()  # a forked child finds the lock as its parent had it
        with self._turn:
            if self._taken:
                raise TransactionError("the journal is taken to be done; write into it before its step or block ends")
            self._entries.append(entry)

    def __len__(self) -> int:
        """Count what was written so far."""
        return len(self._entries)


def taken(journal: Journal) -> Sequence[Entry]:
    """Take what a journal holds; nothing is added any more."""
    with journal._turn:
        journal._taken = True
        return journal._entries
