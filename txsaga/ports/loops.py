"""Where code that blocks runs within an event loop, so that only its task waits."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Loops(Protocol):
    """Runs code that blocks on a stack of its own, which is put aside wherever it would wait."""

    def __call__(self, work: Callable[[], T], *, unbroken: bool = False) -> Coroutine[Any, Any, T]:
        """Do some work to its end; a task that was cancelled meanwhile is told so behind it.

        What heeds a cancellation half-way, as drivers do, heeds none in work that is `unbroken`.
        """
