"""
Waiting for a tick: one listening connection, any number of waiting threads.

A wake-up is only a hint; when it is lost the caller's time-out brings it back to the log. A forked child listens on
its own: the thread that seems to listen there runs in the parent.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Any

import psycopg
from sqlalchemy import Engine

from txsaga.adapters.postgres.line import Line
from txsaga.errors import StoreError

_every_wakeup: weakref.WeakSet[Wakeup] = weakref.WeakSet()


def _start_anew_after_fork() -> None:
    for wakeup in list(_every_wakeup):
        wakeup.start_anew()


os.register_at_fork(after_in_child=_start_anew_after_fork)


class Wakeup:
    """Hears the NOTIFY of ticks."""

    def __init__(self, engine: Engine, channel: str) -> None:
        self._line, self._channel = Line(engine), channel
        self.start_anew()
        _every_wakeup.add(self)

    def start_anew(self) -> None:
        """Forget who listens and who waits."""
        self._listening = threading.Lock()
        self._news = threading.Condition()
        self._count = 0
        self._connection: psycopg.Connection[Any] | None = None

    def wait(self, seconds: float) -> bool:
        """Wait until a tick announces news, at most this long."""
        if self._listening.acquire(blocking=False):
            try:
                return self._listen(seconds)
            finally:
                self._listening.release()
        with self._news:
            seen = self._count
            return self._news.wait_for(lambda: self._count != seen, seconds)

    def close(self) -> None:
        """Close the listening connection."""
        self._line.close()

    def _listen(self, seconds: float) -> bool:
        try:
            connection = self._line.connection()
            if connection is not self._connection:
                connection.execute(f'LISTEN "{self._channel}"')
                self._connection = connection
                return True  # whatever came before LISTEN was not heard: look
            heard = any(True for _ in connection.notifies(timeout=seconds, stop_after=1))
        except (psycopg.Error, StoreError):
            self._line.close()
            time.sleep(min(seconds, 0.1))
            return False
        if heard:
            with self._news:
                self._count += 1
                self._news.notify_all()
        return heard
