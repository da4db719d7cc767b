"""Work within an event loop, if greenlet is installed; otherwise the caller gets an error with the remedy."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any, TypeVar

from txsaga.core.fibers import Loops
from txsaga.errors import ConfigError

T = TypeVar("T")


def in_loop(work: Callable[[], T], *, unbroken: bool = False) -> Coroutine[Any, Any, T]:
    """Run some work to its end, suspending only the task."""
    return _stacks()(work, unbroken=unbroken)


@cache
def _stacks() -> Loops:
    try:
        from txsaga.aio.stacks import run
    except ImportError as missing:
        raise ConfigError(f"`async with` needs greenlet ({missing}); pip install 'txsaga[asyncio]'") from missing
    return run
