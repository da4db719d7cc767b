"""
Work in a transaction over several resources, run again where one of them says that its failure will pass.

Only that one code is tried again by itself: any other no would come again, or says that work was lost which only its
caller can judge. Each try is a transaction of its own; with a key they are attempts of one. If it is never tried
again, the caller has the vote as an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

from txsaga.errors.xa import TransientFailure
from txsaga.model.arguments import check_count

Opened = TypeVar("Opened")
Answer = TypeVar("Answer")
FIRST, LONGEST = 0.05, 2.0


def again(
    open: Callable[[], AbstractContextManager[Opened]], work: Callable[[Opened], Answer], attempts: int = 3
) -> Answer:
    """Run work in a transaction that `open` makes, up to so many times while a resource says that it will pass."""
    check_count(attempts, "attempts")
    pause = FIRST
    for _ in range(attempts - 1):
        try:
            return _once(open, work)
        except TransientFailure:
            time.sleep(pause)
            pause = min(2 * pause, LONGEST)
    return _once(open, work)


def _once(open: Callable[[], AbstractContextManager[Opened]], work: Callable[[Opened], Answer]) -> Answer:
    with open() as tx:
        answer = work(tx)
    return answer
