"""
How often a secret may be wrong: whoever guesses has to wait.
"""

from __future__ import annotations

from collections import deque
from threading import Lock
from time import monotonic

TRIES, FROM_ADDRESS, WINDOW = 5, 50, 60.0
"""Wrong secrets for a name, and from an address (perhaps of a proxy), in so many seconds."""
REMEMBERED = 10_000
"""Names and addresses with wrong secrets that are kept."""


class GuessLimit:
    """The wrong secrets of the last minute."""

    def __init__(self) -> None:
        self._wrong: dict[tuple[str, str], deque[float]] = {}
        self._lock = Lock()

    def wait(self, name: str, address: str) -> float:
        """Return for how many seconds a name or an address has to wait, 0 if it may try."""
        with self._lock:
            tries = [self._wrong[key] for key in _keys(name, address) if key in self._wrong]
            ends = [each[0] + WINDOW for each in tries if len(each) == each.maxlen]
        return max(0.0, max(ends, default=0.0) - monotonic())

    def add(self, name: str, address: str) -> None:
        """Count a wrong secret."""
        with self._lock:
            if len(self._wrong) > REMEMBERED:
                self._wrong.clear()
            for key, most in _keys(name, address).items():
                self._wrong.setdefault(key, deque(maxlen=most)).append(monotonic())


def _keys(name: str, address: str) -> dict[tuple[str, str], int]:
    return {("name", name): TRIES, ("address", address): FROM_ADDRESS}
