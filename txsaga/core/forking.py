"""
Forks: what a child must start anew, and which process this is.

The process number costs no system call here, because a block checks at each step whether it belongs to this process.
If a forked child did not get a new number, it would go on with its parent's blocks.
"""

from __future__ import annotations

import os
from collections.abc import Callable

_this = os.getpid()


def at_fork(start_anew: Callable[[], object]) -> None:
    """Run a function in every forked child, after those that were registered before it."""
    os.register_at_fork(after_in_child=start_anew)


def this_process() -> int:
    """Return the number of this process."""
    return _this


def _look_again() -> None:
    global _this  # one value per process
    _this = os.getpid()


at_fork(_look_again)
