"""
Calls that may never return, to databases and to users' code: each has its own thread and a time limit.

A driver that waits on a dead connection can't be stopped, and a statement's own timeout does not work while the server
is silent. A target with a hanging call is not called again until that call ends. The program does not wait for the call
when it exits. Without this, one silent database would stop check-back for every group.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import TypeVar

from txsaga.core.failure import complete, contained
from txsaga.errors import StoreUnavailable

Answer = TypeVar("Answer")

PATIENCE = 6.0
"""Seconds from the start of a call: well below the lease of a round, so that a process that waited still leads."""


class TimeboxedCalls:
    """The calls, by target."""

    def __init__(self) -> None:
        # The latest one per target: no other began later. What hangs in a process does not hang in its children.
        self._hanging: dict[tuple[int, str], Future[object]] = {}

    def begin(self, whom: str, call: Callable[[], Answer]) -> Callable[[], Answer]:
        """Start a call and return a function that waits for its answer; `StoreUnavailable` if an earlier one hangs."""
        hanging, until = self._hanging.get((os.getpid(), whom)), time.monotonic() + PATIENCE
        if hanging is not None and not hanging.done():
            raise _silent(whom)
        done: Future[Answer] = Future()
        ours = partial(contained, call, StoreUnavailable)  # where the answer is read it would end a thread of ours
        context = copy_context()  # announcements of the call know its context
        threading.Thread(target=context.run, args=(complete, done, ours), name="txsaga-evidence", daemon=True).start()

        def answer() -> Answer:
            try:
                return done.result(max(0.0, until - time.monotonic()))
            except TimeoutError:
                if done.done():
                    return done.result()  # or the call's own error
                self._hanging[os.getpid(), whom] = done  # type: ignore[assignment]  # never read
                raise _silent(whom) from None

        return answer


def _silent(whom: str) -> StoreUnavailable:
    return StoreUnavailable(f"{whom} does not answer")
