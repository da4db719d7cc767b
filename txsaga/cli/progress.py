"""
How far long work has come, for whoever looks at a terminal.

It is written to the error output, and only when that is a terminal: what a program reads, or a file keeps, is the
answer alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(what: str, total: int | None = None, *, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """Show a bar while the block is at work, gone behind it; the block tells what is done, if anybody can know."""
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
