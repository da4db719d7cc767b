"""
Work in a thread beside, for drivers that can only send and wait in one call.

A thread that is done waits for more: to begin one costs more than a short statement. A forked child has none of its
parent's. The program does not wait for them at its end: what a thread had sent is found by recovery.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

Answer = TypeVar("Answer")
Job = tuple[Future[Any], Callable[[], object]]

MOST = 32
"""Threads that wait; more than that end with their work."""
_idle: list[SimpleQueue[Job]] = []
os.register_at_fork(after_in_child=_idle.clear)


def start(work: Callable[[], Answer]) -> Future[Answer]:
    """Begin with some work."""
    future: Future[Answer] = Future()
    try:
        jobs = _idle.pop()
    except IndexError:  # asking first would not do: another thread may take the last one between
        jobs = SimpleQueue()
        Thread(target=_run, args=(jobs,), name="txsaga branch", daemon=True).start()
    jobs.put((future, work))
    return future


def _run(jobs: SimpleQueue[Job]) -> None:
    process = os.getpid()
    while True:
        future, work = jobs.get()
        try:
            answer = work()
        except BaseException as failed:  # noqa: BLE001  # it is raised where the result is asked for
            future.set_exception(failed)
        else:
            future.set_result(answer)
        del future, work
        if len(_idle) >= MOST or os.getpid() != process:
            return
        _idle.append(jobs)
