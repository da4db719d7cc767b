"""
Which process this is, known without asking the system: a block asks at each step whether it is its own.

If a forked child were not told that it is another one, it would go on with its parent's blocks.
"""

from __future__ import annotations

import os

_this = os.getpid()


def this_process() -> int:
    """Return the number of this process."""
    return _this


def _look_again() -> None:
    global _this  # it is the process's own
    _this = os.getpid()


os.register_at_fork(after_in_child=_look_again)
