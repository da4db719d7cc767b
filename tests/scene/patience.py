"""Waiting for something that another session or thread will do, by looking until it is there."""

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")
PATIENCE = 20.0


def eventually(look: Callable[[], Found], what: str) -> Found:
    """Look until there is something, and return it."""
    deadline = time.monotonic() + PATIENCE
    while not (found := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {PATIENCE:g} s: {what}")
        time.sleep(0.005)
    return found
