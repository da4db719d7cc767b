"""
One check of one wait, in a thread of its own: it asks code of the user's, which may hang.

Whoever began it goes on without it. What hangs for good is given up with its wait; if it answers for all that, what it
says is settled as any answer that comes late.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from txsaga.provider.waits.kinds import Answer

Checked = tuple[Answer | None, int]
"""The answer, if there is one, and how often was asked."""


class Asking:
    """A check that is under way."""

    def __init__(self, check: Callable[[], Checked]) -> None:
        self._check, self._begun = check, time.monotonic()
        self._over = threading.Event()
        self._found: Checked | None = None
        self._error: Exception | None = None
        threading.Thread(target=self._run, name="txsaga-asking", daemon=True).start()

    @property
    def age(self) -> float:
        """The seconds since it began."""
        return time.monotonic() - self._begun

    def wait(self, until: float) -> bool:
        """Wait for it until a moment of the steady clock; tell whether it is over."""
        return self._over.wait(max(0.0, until - time.monotonic()))

    def result(self) -> Checked:
        """Return what it came to, or raise what it raised."""
        if self._error is not None:
            raise self._error
        assert self._found is not None
        return self._found

    def _run(self) -> None:
        try:
            self._found = self._check()
        except Exception as error:  # noqa: BLE001  # it is raised where it is asked for
            self._error = error
        except BaseException as leaving:  # noqa: BLE001  # a checker that wants to end the process ends its wait
            self._error = RuntimeError(f"{type(leaving).__name__}: {leaving}")
        finally:
            self._over.set()
