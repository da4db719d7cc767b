"""
What a command prints: a table or a few lines for people, one JSON document for programs.

Text that came from a message can't move the cursor or break a line: what is not printable is escaped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from txsaga.core.stored_json import plain

if TYPE_CHECKING:
    from txsaga.cli.options import Options
    from txsaga.core.message import Delivered
    from txsaga.inspect.timeline import TimelineStep

WIDE = 100_000
"""Columns of an output that is no terminal: nothing is wrapped or cut there."""


def say(text: str = "") -> None:
    """Print one line."""
    sys.stdout.write(f"{text}\n")


def document(value: object) -> None:
    """Print one JSON document."""
    say(json.dumps(value, default=plain, indent=2))


def result(options: Options, value: object, text: str) -> None:
    """Print what a command did: one JSON document for programs, else a text for people."""
    if options.json:
        document(value)
    else:
        say(text)


def listing(
    options: Options, documents: Iterable[object], columns: Sequence[str], rows: Iterable[Sequence[object]]
) -> None:
    """Print what a command found: a document of documents for programs, else a table for people."""
    if options.json:
        document([*documents])
    else:
        table(columns, rows)


def fields(values: Mapping[str, object]) -> None:
    """Print names and values, one per line."""
    width = max(map(len, values), default=0)
    for name, value in values.items():
        say(f"{name:<{width}}  {shown(value)}".rstrip())


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
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


def tables(*found: Sequence[Mapping[str, object]]) -> None:
    """Print lists of documents as tables, each after an empty line; an empty list is left out."""
    for rows in found:
        if rows:
            say()
            table(tuple(rows[0]), [tuple(row.values()) for row in rows])


def shown(value: object) -> str:
    """Write a value for people."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case datetime():
            return value.isoformat(sep=" ", timespec="seconds")
        case timedelta():
            from txsaga.core.clock import span_in_words  # it takes long to load

            return span_in_words(value)
        case _:
            return printable(str(value))


def printable(text: str) -> str:
    """Escape what a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@contextmanager
def progress(what: str, total: int | None = None, *, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """Show a bar while the block runs; the block reports how much is done, if it can be known."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    counted = [] if total is None else [MofNCompleteColumn()]
    columns = (TextColumn("{task.description}"), BarColumn(), *counted, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True, markup=False), transient=True) as shown:
        task = shown.add_task(what, total=total)
        yield lambda count: shown.advance(task, count)


def line_of(message: Delivered) -> str:
    """Write a message for people."""
    from txsaga.inspect.documents import readable

    marks = {"key": message.key, "tag": message.tag, **message.headers}
    words = [f"{printable(name)}={printable(value)}" for name, value in marks.items() if value is not None]
    text, encoding = readable(message.body)
    body = printable(text) if encoding == "utf-8" else f"base64:{text}"
    return " ".join([f"{message.topic}/{message.queue}@{message.offset}", *words, body])


def message_json(message: Delivered) -> str:
    """Write a message as one JSON document without a line break."""
    from txsaga.inspect.documents import message_document

    return json.dumps(message_document(message), default=plain)


def say_timeline(steps: Sequence[TimelineStep]) -> None:
    """Print a timeline."""
    from txsaga.inspect.timeline import draw

    for line in draw(steps):
        say(printable(line))
    say()
    rows = [(number, _when(each), each.lane, each.what, each.who, each.why) for number, each in enumerate(steps, 1)]
    table(("step", "at", "lane", "what", "who", "why"), rows)


def _when(step: TimelineStep) -> str:
    """Write a moment; one that was not recorded has at most an upper bound."""
    moment = step.at or step.before
    if moment is None:
        return shown(None)
    written = moment.isoformat(sep=" ", timespec="milliseconds")
    return written if step.at else f"before {written}"
