"""
Calls that are begun now and waited for later, each in a thread of its own: many resources are at work at once.

If nobody waits, the call is made all the same and its error is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

Answer = TypeVar("Answer")


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
