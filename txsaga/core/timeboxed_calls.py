"""
Calls that may never answer, into databases and into users' code: each has a thread of its own, and a time.

A driver that waits on a line that fell silent can't be told to stop, and a limit that a statement sets is not there
while that statement has no answer. Who has such a call is not called again until the call ends. The program does not
wait for it at its end. Without this, one silent database would stop check-back for every group.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from threading import Thread
from typing import TypeVar

from txsaga.errors import StoreUnavailable

Answer = TypeVar("Answer")

PATIENCE = 6.0
"""Seconds from the beginning of a call: well below the lead of a round, so that whoever waited still leads."""


class TimeboxedCalls:
    """The calls, by who is called."""

    def __init__(self) -> None:
        # The last one of each: the others began no later. What hangs in a process does not hang in its children.
        self._hanging: dict[tuple[int, str], Future[object]] = {}

    def begin(self, whom: str, call: Callable[[], Answer]) -> Callable[[], Answer]:
        """Begin a call and return the way to its answer; `StoreUnavailable` where another one still hangs."""
        hanging, until = self._hanging.get((os.getpid(), whom)), time.monotonic() + PATIENCE
        if hanging is not None and not hanging.done():
            raise _silent(whom)
        done: Future[Answer] = Future()
        context = copy_context()  # whoever announced the call has announced what it does
        threading.Thread(target=context.run, args=(_run, call, done), name="txsaga-evidence", daemon=True).start()

        def answer() -> Answer:
            try:
                return done.result(max(0.0, until - time.monotonic()))
            except TimeoutError:
                if done.done():
                    return done.result()  # or the call's own error
                self._hanging[os.getpid(), whom] = done  # type: ignore[assignment]  # nobody reads it
                raise _silent(whom) from None

        return answer


def _silent(whom: str) -> StoreUnavailable:
    return StoreUnavailable(f"{whom} does not answer")


def _run(call: Callable[[], Answer], done: Future[Answer]) -> None:
    try:
        answer = call()
    except Exception as failed:  # noqa: BLE001  # it is raised where the answer is wanted
        done.set_exception(failed)
    except BaseException as failed:  # noqa: BLE001  # where it is wanted it would end a thread of ours
        done.set_exception(StoreUnavailable(f"{type(failed).__name__}: {failed}"))
    else:
        done.set_result(answer)


def sent(call: Callable[[], Answer]) -> Callable[[], Answer]:
    """Begin a call in a thread; the function that is returned waits for it."""
    future: Future[Answer] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001  # whoever waits gets it
            future.set_exception(error)

    Thread(target=run, name="txsaga-branch", daemon=True).start()
    return future.result
