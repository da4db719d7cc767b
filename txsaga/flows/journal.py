"""
Which statements may wait in a journal: those that can be executed later, in one transaction, their results unread.

Only keywords are checked, outside of literals, comments and quoted names; the database decides when the journal is
executed. If a reading statement got past here, its rows would be lost, and its row count taken for work.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from math import isfinite
from threading import Lock
from typing import NamedTuple, TypeVar
from uuid import UUID

from txsaga.core.arguments import check_kind
from txsaga.core.stored_json import as_json
from txsaga.errors import ConfigError, TransactionError

T = TypeVar("T")

_SILENT = re.compile(
    r"--[^\n\r]*"  # a comment to the end of the line
    r"|/\*.*?\*/"  # a comment
    r"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$"  # a dollar-quoted literal
    r"|'(?:[^']|'')*'"  # a literal
    r'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]\d]*\]',  # a quoted name
    re.DOTALL,
)
_WORD = re.compile(r"[A-Za-z_]\w*")
_LONG = 2_000
_READING = frozenset({"SELECT", "SHOW", "VALUES", "TABLE", "EXPLAIN", "FETCH", "DESCRIBE", "PRAGMA"})
_CHANGING = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE"})
_LOCKING = frozenset({"CONFLICT", "DUPLICATE", "UPDATE", "SHARE"})  # ON CONFLICT …, SELECT … FOR UPDATE


def of_short(made: Callable[[str], T]) -> Callable[[str], T]:
    """Cache the results for recent short texts: a program uses the same few again and again."""
    remembered = lru_cache(maxsize=512)(made)
    return lambda text: (remembered if len(text) <= _LONG else made)(text)


def reading(text: str) -> str | None:
    """Return the keyword by which a statement returns rows, or None."""
    for part in _SILENT.sub(" ", text).split(";"):
        words = [word.upper() for word in _WORD.findall(part)]
        if "RETURNING" in words:
            return "RETURNING"
        if words and words[0] in _READING:
            return str(words[0])
        if words and words[0] == "WITH" and _CHANGING.isdisjoint(words):
            return "SELECT"
    return None


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
        raise ConfigError("a journal takes the text of one statement")
    _words(text)


@of_short
def only_adds(text: str) -> bool:
    """Return whether a journalled statement locks no existing row, apart from what a trigger does."""
    words = _words(text)
    return words[0] == "INSERT" and _LOCKING.isdisjoint(words)


@of_short
def _words(text: str) -> Sequence[str]:
    as_json(text, "the statement")
    parts = [words for part in _SILENT.sub(" ", text).split(";") if (words := _WORD.findall(part))]
    if len(parts) != 1:
        raise ConfigError("a journal takes one statement at a time; give each to an execute of its own")
    if word := reading(text):
        raise ConfigError(
            f"a journal can't take {word}: nobody is there to read its rows when it is done; "
            'read in a step with hold="prepared", or by tx.on(…)'
        )
    words = [word.upper() for word in parts[0]]
    if words[0] not in _CHANGING and words[0] != "WITH":
        raise ConfigError(f"a journal can't take {words[0]}: it takes {', '.join(sorted(_CHANGING))} alone")
    return words


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
            f"parameter {name!r} is a {type(value).__name__}, which a journal can't keep; give a text, a number, "
            "a truth value, a moment, a date, a Decimal, a UUID, bytes or None"
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
                raise TransactionError("the journal is taken to be done; write into it before its step or block ends")
            self._entries.append(entry)

    def __len__(self) -> int:
        return len(self._entries)


def taken(journal: Journal) -> Sequence[JournalEntry]:
    """Return the entries of a journal; none can be added any more."""
    with journal._turn:
        journal._taken = True
        return journal._entries
