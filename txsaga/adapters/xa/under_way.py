"""
Work in a thread of its own, for drivers that can only send and wait in one call.

A thread lasts for one call: a pool would be lost at a fork, with its queue. The program does not wait for it at its
end: what it had sent is found by recovery.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

Answer = TypeVar("Answer")


def start(work: Callable[[], Answer]) -> Future[Answer]:
    """Begin with some work."""
    future: Future[Answer] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as failed:  # noqa: BLE001  # it is raised where the result is asked for
            future.set_exception(failed)

    Thread(target=run, name="txsaga branch", daemon=True).start()
    return future
