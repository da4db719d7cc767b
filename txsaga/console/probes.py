"""
Questions that may take long (does a database answer?), asked in threads.

A page waits two seconds for an answer. An answer is shown again for half a minute, so that many open pages ask once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from threading import Lock, Thread
from typing import Any, TypeVar

PATIENCE, FRESH = 2.0, 30.0
K = TypeVar("K", bound=Hashable)


class Probes:
    """What was asked, and since when."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._asked: dict[Hashable, tuple[float, Future[Any]]] = {}

    def ask(
        self, questions: Mapping[K, Callable[[], Any]], otherwise: Any = None, patience: float = PATIENCE
    ) -> Mapping[K, Any]:
        """Return the answer to each question, all asked at once; `otherwise` for one that takes too long."""
        with self._lock:
            now = time.monotonic()
            self._asked = {k: v for k, v in self._asked.items() if now < v[0] + FRESH or not v[1].done()}
            for name, question in questions.items():
                if name not in self._asked:
                    self._asked[name] = now, Future()
                    # A daemon: a database that hangs does not keep the console from ending.
                    Thread(target=_answer, args=(self._asked[name][1], question, otherwise), daemon=True).start()
            asked = {name: self._asked[name] for name in questions}
        return {name: _waited(future, since + patience, otherwise) for name, (since, future) in asked.items()}


def _answer(future: Future[Any], question: Callable[[], Any], otherwise: Any) -> None:
    found = otherwise
    try:
        found = question()
    finally:
        future.set_result(found)


def _waited(future: Future[Any], until: float, otherwise: Any) -> Any:
    try:
        return future.result(max(0.0, until - time.monotonic()))
    except TimeoutError:
        return otherwise
