"""
Something that is looked at again and again beside a block of work, in a thread of its own.

If it never runs the work is done all the same: nobody is told of its progress, or of a place that was taken.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from threading import Event, Thread
from types import TracebackType
from typing import Self


class Beside(ABC):
    """Looks as long as the block lasts."""

    def __init__(self, every: float) -> None:
        self._every, self._over = every, Event()
        self._thread = Thread(target=self._watch, daemon=True)

    @abstractmethod
    def look(self) -> None:
        """Look once."""

    def __enter__(self) -> Self:
        """Begin to look."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(self._every):
            self.look()
