"""
Steps that run beside each other, in threads.

Each has its number from the moment it was asked for: they are undone in the reverse order of these. Where one fails,
those that have not begun never begin, and those under way are waited for: only then can the saga roll back.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from threading import Event
from types import TracebackType
from typing import Any, Self

from txsaga.engine.saga.trying import Asked


class Parallel:
    """Runs steps beside each other until its block ends."""

    def __init__(
        self, asked: Callable[..., Asked], number: Callable[[], int], run: Callable[[int, Asked], object], threads: int
    ) -> None:
        self._asked, self._number, self._run = asked, number, run
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="txsaga-steps")
        self._failed = Event()
        self._running: list[Future[object]] = []

    def step(self, do: Any, **options: Any) -> Future[object]:  # noqa: ANN401  # as `Saga.step` takes them
        """Begin a step beside the others; the future is done when it is."""
        asked = self._asked(do, **options)
        future = self._pool.submit(self._one, self._number(), asked)
        self._running.append(future)
        return future

    def __enter__(self) -> Self:
        """Use it as a context manager."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for all of them; the first one that failed is raised, the others are noted with it."""
        if error is not None:
            self._failed.set()
        wait(self._running)
        self._pool.shutdown()
        errors = [raised for each in self._running if (raised := _raised(each)) is not None]
        if error is not None or not errors:
            return
        for other in errors[1:]:
            errors[0].add_note(f"beside it: {type(other).__name__}: {other}")
        raise errors[0]

    def _one(self, number: int, asked: Asked) -> object:
        if self._failed.is_set():
            raise CancelledError(f"step {asked.name!r} did not begin: one beside it failed")
        try:
            return self._run(number, asked)
        except BaseException:
            self._failed.set()
            raise


def _raised(future: Future[object]) -> BaseException | None:
    error = future.exception()
    return None if isinstance(error, CancelledError) else error
