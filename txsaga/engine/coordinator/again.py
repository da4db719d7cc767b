"""
A coordinated transaction as a function, run again where a resource says that its failure will pass.

Only that one code is tried again by itself: any other no would come again, or says that work was lost which only its
caller can judge. Each try is a transaction of its own; with a key they are attempts of one. If it is never tried
again, the caller has the vote as an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from txsaga.engine.coordinator.block import Coordinated
from txsaga.errors.xa import TransientFailure

Answer = TypeVar("Answer")
FIRST, LONGEST = 0.05, 2.0


def run(open: Callable[[], Coordinated], work: Callable[[Coordinated], Answer], attempts: int) -> Answer:
    """Run work in a transaction, up to so many times."""
    pause = FIRST
    for _ in range(attempts - 1):
        try:
            with open() as tx:
                answer = work(tx)
            return answer
        except TransientFailure:
            time.sleep(pause)
            pause = min(2 * pause, LONGEST)
    with open() as tx:
        answer = work(tx)
    return answer
