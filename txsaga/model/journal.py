"""
Which statements may wait in a journal: those that are done later, all in one transaction, with nobody there to read.

Only words are looked at, outside of texts, comments and quoted names; the database has the last word when the journal
is done. If a reading statement got past here, its rows would go nowhere, and its row count would be taken for work.
"""

from __future__ import annotations

import re

_SILENT = re.compile(
    r"--[^\n]*"  # a comment to the end of the line
    r"|/\*.*?\*/"  # a comment
    r"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$"  # a text between dollars
    r"|'(?:[^']|'')*'"  # a text
    r'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]\d]*\]',  # a quoted name
    re.DOTALL,
)
_WORD = re.compile(r"[A-Za-z_]\w*")
_READING = frozenset({"SELECT", "SHOW", "VALUES", "TABLE", "EXPLAIN", "FETCH", "DESCRIBE", "PRAGMA"})
_CHANGING = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE"})


def reading(text: str) -> str | None:
    """Return the word by which a statement gives rows back, if it does."""
    for part in _SILENT.sub(" ", text).split(";"):
        words = [word.upper() for word in _WORD.findall(part)]
        if "RETURNING" in words:
            return "RETURNING"
        if words and words[0] in _READING:
            return str(words[0])
        if words and words[0] == "WITH" and _CHANGING.isdisjoint(words):
            return "SELECT"
    return None
