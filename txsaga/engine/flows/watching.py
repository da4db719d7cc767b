"""
An eye on a step that works: one that waits for what its own flow holds prepared would wait for ever (R17).

It looks only once the step has been at work for a while, so most steps pay nothing. Whoever waits for somebody else
waits as long as its session allows. If nobody looks, such a step waits until its own time-out ends it.
"""

from __future__ import annotations

import logging
import threading
from types import TracebackType
from typing import Self

from txsaga.errors import TxSagaError
from txsaga.ports.flows import Waits

logger = logging.getLogger("txsaga")

FIRST = 0.5
EACH = 0.5
"""Seconds till the first look, and between two: a step is refused well within two seconds."""


class Watch:
    """Looks whether a session waits for its own flow, and ends the waiting."""

    def __init__(self, waits: Waits | None) -> None:
        self._waits, self._over = waits, threading.Event()
        self._thread: threading.Thread | None = None
        self.found: str | None = None

    def __enter__(self) -> Self:
        """Begin to look."""
        if self._waits is not None:
            self._thread = threading.Thread(target=self._run, args=(self._waits,), name="txsaga-watch", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Look no more."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, waits: Waits) -> None:
        pause = FIRST
        try:
            while not self._over.wait(pause):
                pause = EACH
                self.found = waits.own_blocker()
                if self.found is not None:
                    waits.interrupt()
                    return
        except TxSagaError as reason:
            logger.warning("nobody can look whether a step waits for its own flow: %s", reason)
        finally:
            waits.close()
