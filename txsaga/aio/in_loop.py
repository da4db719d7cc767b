"""Work within an event loop, where what that takes is installed; if it is not, whoever needs it is told so."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any, TypeVar

from txsaga.core.fibers import Loops
from txsaga.errors import ConfigError

T = TypeVar("T")


def in_loop(work: Callable[[], T], *, unbroken: bool = False) -> Coroutine[Any, Any, T]:
    """Do some work to its end, waiting as a task does."""
    return _stacks()(work, unbroken=unbroken)


@cache
def _stacks() -> Loops:
    try:
        from txsaga.aio.stacks import run
    except ImportError as missing:
        raise ConfigError(f"`async with` needs greenlet ({missing}); pip install 'txsaga[asyncio]'") from missing
    return run
