"""
Announcing facts to observers, before and after each durable step.

Observers can't fail the work: their exceptions are logged and dropped. If an announcement never came, the step would
still be done; no observer would have seen it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from txsaga.core.facts import AFTER, Fact

logger = logging.getLogger("txsaga")

Observer = Callable[[Fact], object]
"""Receives facts, in the thread that announces them; an exception is logged and dropped."""


class Announcer:
    """Announces facts to observers, in the thread that makes them."""

    __slots__ = ("_observers",)

    def __init__(self, observers: Sequence[Observer] = ()) -> None:
        self._observers = tuple(observers)

    def __bool__(self) -> bool:
        """Return whether there are observers: without any, the hot path makes no facts."""
        return bool(self._observers)

    def __call__(self, fact: Fact) -> None:
        """Announce one fact."""
        for observer in self._observers:
            try:
                observer(fact)
            except Exception:
                logger.exception("observer %r failed on %s", observer, fact.name)

    def around(self, before: type[Fact], *txids: int, about: str = "") -> AbstractContextManager[None]:
        """Announce the fact before a step and the one after it; none after a step that failed."""
        return self._around(before, txids, about) if self._observers else nullcontext()

    @contextmanager
    def _around(self, before: type[Fact], txids: tuple[int, ...], about: str) -> Iterator[None]:
        self(before(txids, about=about))
        yield
        self(AFTER[before](txids, about=about))
