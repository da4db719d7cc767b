"""Observers: they hear every fact and can't fail the work."""

from typing import Protocol

from txsaga.model.facts import Fact


class Observer(Protocol):
    """Hears facts, in the thread that makes them."""

    def __call__(self, fact: Fact) -> None:
        """Hear a fact; an exception is logged and dropped."""
