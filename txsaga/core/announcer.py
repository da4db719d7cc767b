"""
Announcing facts to observers, before and after each durable step.

Observers can't fail the work: an exception is logged and dropped. If an announcement never came, the step
would still be done; only nobody would have seen it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from txsaga.core.facts import AFTER, Fact


class Observer(Protocol):
    """Hears facts, in the thread that makes them."""

    def __call__(self, fact: Fact) -> None:
        """Hear a fact; an exception is logged and dropped."""


logger = logging.getLogger("txsaga")


class Announcer:
    """Tells facts to observers, in the thread that makes them."""

    __slots__ = ("_observers",)

    def __init__(self, observers: Sequence[Observer] = ()) -> None:
        self._observers = tuple(observers)

    def __bool__(self) -> bool:
        """Tell whether anybody listens: the hot path makes no facts for nobody."""
        return bool(self._observers)

    def __call__(self, fact: Fact) -> None:
        """Tell one fact."""
        for observer in self._observers:
            try:
                observer(fact)
            except Exception:
                logger.exception("observer %r failed on %s", observer, fact.name)

    @contextmanager
    def around(self, before: type[Fact], *txids: int, about: str = "") -> Iterator[None]:
        """Tell the fact before a step and the one after it; none after a step that failed."""
        after = AFTER[before]
        if self._observers:
            self(before(txids, about=about))
        yield
        if self._observers:
            self(after(txids, about=about))
