"""What works beside the callers of a benchmark, in a process of its own: theirs is not to wait for its interpreter."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

Work = Callable[[str, Connection], None]
"""It is given a URL and a pipe: it says when it is ready, and ends when it is told anything."""


@contextmanager
def beside(work: Work, url: str) -> Iterator[None]:
    """Run work beside the block."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(url, theirs))
    process.start()
    try:
        ours.recv()
        yield
    finally:
        ours.send("stop")
        process.join(30)
