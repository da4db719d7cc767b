"""
News for open pages, by server-sent events: one reader asks the store twice a second, however many pages are open.

A page is told only that something changed; it then asks for what it shows. It asks as well whenever its stream begins.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from txsaga.console.queries import ConsoleQueries
from txsaga.errors import TxSagaError

if TYPE_CHECKING:
    from txsaga.console.home import Home

PAUSE = 0.5
"""Seconds between two looks; nobody looks while no page is open."""
PULSE = 15.0
"""Seconds after which a line is sent although nothing changed, so that a dead connection is noticed."""


class News:
    """What changed since a page was told last."""

    def __init__(self, home: Home) -> None:
        self._home, self._last = home, ""
        self._task: asyncio.Task[None] | None = None
        self._readers: set[asyncio.Queue[str]] = set()

    async def stream(self) -> AsyncIterator[str]:
        """Yield events for one page until it is closed."""
        queue: asyncio.Queue[str] = asyncio.Queue(maxsize=8)
        self._readers.add(queue)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        try:
            yield ": hello\n\n"
            while True:
                try:
                    yield await asyncio.wait_for(queue.get(), PULSE)
                except TimeoutError:
                    yield ": still here\n\n"
        finally:
            self._readers.discard(queue)

    async def _look(self) -> None:
        while self._readers:
            found = json.dumps(await asyncio.to_thread(self._seen))
            if found != self._last:
                self._last = found
                for queue in self._readers:
                    with suppress(asyncio.QueueFull):  # it has news that it has not read
                        queue.put_nowait(f"event: change\ndata: {found}\n\n")
            await asyncio.sleep(PAUSE)

    def _seen(self) -> Mapping[str, Any]:
        try:
            return {"at": ConsoleQueries.of(self._home.broker.kernel.store).mark()}
        except TxSagaError as away:
            return {"away": str(away)}
