"""
Which statements may wait in a journal: those that can be executed later, in one transaction, their results unread.

Only keywords are checked, outside of literals, comments and quoted names; the database decides when the journal is
executed. If a reading statement got past here, its rows would be lost, and its row count taken for work. A text that is
several statements to a database in which a backslash escapes a quote is refused for every database.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from math import isfinite
from threading import Lock
from typing import NamedTuple
from uuid import UUID

from txsaga.core.arguments import check_kind
from txsaga.core.stored_json import as_json
from txsaga.errors import ConfigError, TransactionError

_SILENT = (
    r"--[^\n\r]*"  # a comment to the end of the line
    r"|/\*.*?\*/"  # a comment
    r"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$"  # a dollar-quoted literal
    r"|'(?:{character}|'')*'"  # a literal
    r'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]\d]*\]'  # a quoted name
)
_PLAIN = re.compile(_SILENT.replace("{character}", "[^']"), re.DOTALL)
_ESCAPED = re.compile(_SILENT.replace("{character}", r"[^'\\]|\\."), re.DOTALL)
_WORD = re.compile(r"[A-Za-z_]\w*")
_READING = frozenset({"SELECT", "SHOW", "VALUES", "TABLE", "EXPLAIN", "FETCH", "DESCRIBE", "PRAGMA"})
_CHANGING = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE"})


def reading(text: str) -> str | None:
    """Return the keyword by which a statement returns rows, or None."""
    for words in _statements(_PLAIN, text):
        if "RETURNING" in words:
            return "RETURNING"
        if words[0] in _READING:
            return words[0]
        if words[0] == "WITH" and _CHANGING.isdisjoint(words):
            return "SELECT"
    return None


def _statements(silent: re.Pattern[str], text: str) -> Sequence[Sequence[str]]:
    parts = [_WORD.findall(part.upper()) for part in silent.sub(" ", text).split(";")]
    return [words for words in parts if words]


_TAGS: Mapping[type, tuple[str, Callable[..., str], Callable[[str], object]]] = {
    Decimal: ("decimal", str, Decimal),
    datetime: ("datetime", datetime.isoformat, datetime.fromisoformat),
    date: ("date", date.isoformat, date.fromisoformat),
    UUID: ("uuid", str, UUID),
    bytes: ("bytes", lambda value: b64encode(value).decode("ascii"), b64decode),
}
_READ = {f"${tag}": back for tag, _, back in _TAGS.values()}


def require_journalled(text: str) -> None:
    """Refuse what can't be executed later, by another process, among other statements."""
    if not isinstance(text, str) or not text.strip():
        raise ConfigError("give the journal one statement as text")
    as_json(text, "the statement")
    statements, escaped = _statements(_PLAIN, text), _statements(_ESCAPED, text)
    if len(statements) != 1 or len(escaped) != 1:
        raise ConfigError(
            "a journal takes one statement at a time; pass each to a separate execute, and values as parameters"
        )
    if word := reading(text):
        raise ConfigError(
            f"a journal can't take {word}: it runs only at the decision, when no step can read its rows; "
            'read in a step with hold="prepared", or by tx.on(…)'
        )
    first = statements[0][0]
    if first not in _CHANGING and first != "WITH":
        raise ConfigError(f"a journal can't take {first}: it takes {', '.join(sorted(_CHANGING))} alone")


def written(parameters: Mapping[str, object]) -> dict[str, object]:
    """Return parameters as JSON can store them; `ConfigError` for what it can't."""
    kept = {_name(name): _plain(name, value) for name, value in parameters.items()}
    as_json(kept, "a parameter")
    return kept


def read(kept: Mapping[str, object]) -> dict[str, object]:
    """Convert back what `written` wrote."""
    return {name: _value(value) for name, value in kept.items()}


def _name(name: object) -> str:
    if not isinstance(name, str) or not name.isidentifier():
        raise ConfigError(f"{name!r} can't name a parameter; write :name in the statement and give a mapping")
    return name


def _plain(name: str, value: object) -> object:
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and isfinite(value)):
        return value
    known = _TAGS.get(type(value))
    if known is None:
        raise ConfigError(
            f"parameter {name!r} is a {type(value).__name__}, which a journal can't store; give a text, a "
            "number, True or False, a datetime, a date, a Decimal, a UUID, bytes or None"
        )
    tag, write, _ = known
    return {f"${tag}": write(value)}


def _value(kept: object) -> object:
    if isinstance(kept, Mapping):
        ((tag, said),) = kept.items()
        return _READ[tag](said)
    return kept


class JournalEntry(NamedTuple):
    """A statement, its parameters as stored, and how many rows it must change."""

    text: str
    parameters: Mapping[str, object]
    rows: int | None


class Journalled(NamedTuple):
    """A statement that waits in the journal of a step."""

    step: int
    seq: int
    resource: str
    unit: int
    text: str
    parameters: Mapping[str, object]
    rows: int | None = None  # None: at least one

    def agrees(self, count: int) -> bool:
        """Return whether it changed as many rows as it was to change."""
        return count >= 1 if self.rows is None else count == self.rows


class Journal:
    """The journal of one step, or of one resource in a block, while it is open."""

    def __init__(self, require_open: Callable[[], None] | None = None) -> None:
        self._require_open = require_open
        self._entries: list[JournalEntry] = []
        self._taken, self._turn = False, Lock()

    def execute(self, text: str, parameters: Mapping[str, object] | None = None, *, rows: int | None = None) -> None:
        """Add a statement: it runs with the journal, and must change `rows` rows, by default at least one."""
        require_journalled(text)
        if parameters is not None:
            check_kind(parameters, Mapping, "the parameters", "write :name in the statement and give a mapping")
        if rows is not None and (not isinstance(rows, int) or isinstance(rows, bool) or rows < 0):
            raise ConfigError(f"rows is {rows!r}; give the number of rows that the statement changes, or leave it out")
        entry = JournalEntry(text, written(parameters) if parameters else {}, rows)
        if self._require_open is not None:
            self._require_open()  # before locking: a forked child inherits the lock's state
        with self._turn:
            if self._taken:
                raise TransactionError("this journal is closed; add statements before its step or block ends")
            self._entries.append(entry)

    def __len__(self) -> int:
        return len(self._entries)


def taken(journal: Journal) -> Sequence[JournalEntry]:
    """Return the entries of a journal; none can be added any more."""
    with journal._turn:
        journal._taken = True
        return journal._entries
