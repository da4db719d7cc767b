"""
What a command says: a table or a few lines for people, one JSON document for programs.

Text that came from a message can't move the cursor or break a line: what is not printable is escaped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

Value = object
WIDE = 100_000
"""Columns of an output that is no terminal: nothing is wrapped or cut there."""


def say(text: str = "") -> None:
    """Print one line."""
    sys.stdout.write(f"{text}\n")


def document(value: Value) -> None:
    """Print one JSON document."""
    say(json.dumps(value, default=_plain, indent=2))


def one_line(value: Value) -> str:
    """Write one JSON document without a line break."""
    return json.dumps(value, default=_plain)


def fields(values: Mapping[str, Value]) -> None:
    """Print names and values, one per line."""
    width = max(map(len, values), default=0)
    for name, value in values.items():
        say(f"{name:<{width}}  {shown(value)}".rstrip())


def table(columns: Sequence[str], rows: Iterable[Sequence[Value]]) -> None:
    """Print rows under headings."""
    from rich.console import Console
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*map(shown, row))
    console = Console(markup=False, emoji=False, highlight=False, width=None if sys.stdout.isatty() else WIDE)
    # Through our own output: rich would end the process by itself when a pipe is closed.
    with console.capture() as captured:
        console.print(made)
    for line in captured.get().splitlines():
        say(line.rstrip())


def shown(value: Value) -> str:
    """Write a value for people."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case datetime():
            return value.isoformat(sep=" ", timespec="seconds")
        case timedelta():
            return f"{value.total_seconds():.1f} s"
        case _:
            return printable(str(value))


def printable(text: str) -> str:
    """Escape what a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _plain(value: object) -> object:
    match value:
        case datetime():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case _:
            return str(value)
