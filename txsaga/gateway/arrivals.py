"""News of the log for calls that wait for messages: one thread listens, however many calls wait."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

from txsaga.core.kernel import Kernel

PAUSE = 0.5
"""Seconds that the thread listens at once, so that it notices that it is to end."""
LOOK = 1.0
"""Seconds between two looks for messages that no tick announces, such as those that are due again."""
LONGEST_WAIT = 60.0
"""Seconds that a call waits for messages, at most."""


class Arrivals:
    """Wakes those who wait when a tick has published messages."""

    def __init__(self, kernel: Kernel) -> None:
        self._log, self._loop = kernel.store.log, asyncio.get_running_loop()
        self._news, self._over = asyncio.Event(), False
        self._thread = threading.Thread(target=self._listen, name="txsaga-arrivals", daemon=True)
        self._thread.start()

    async def wait(self, seconds: float) -> None:
        """Wait for news, at most this long."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), seconds)

    def close(self) -> None:
        """Stop listening."""
        self._over = True
        self._thread.join()

    def _listen(self) -> None:
        while not self._over:
            if self._log.wait(PAUSE) and not self._over:
                with suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        waking, self._news = self._news, asyncio.Event()
        waking.set()
