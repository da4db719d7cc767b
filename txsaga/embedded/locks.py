"""The two locks of a home.

`lock` serialises starting, stopping and resetting. Every server process inherits `life`, so it is free
exactly when the last one is gone; only its holder may touch the data folder.

This module must not unlock `life` after a successful start: the open file is shared with the server.
If a holder is killed, the kernel frees `lock`; `life` stays with the server processes.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from txsaga.embedded.complaint import complaint

_PAUSE = 0.02


@contextmanager
def locked(path: Path, *, deadline: float) -> Iterator[bool]:
    """Hold `path` exclusively; yield whether another process held it first."""
    descriptor = _open(path)
    waited = False
    try:
        while not _flock(descriptor):
            waited = True
            if time.monotonic() > deadline:
                raise complaint(f"another process starts or stops the server for too long: see who holds {path}")
            time.sleep(_PAUSE)
        try:
            yield waited
        finally:
            # Explicitly: a child forked meanwhile shares the open file and would keep the lock.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeLock:
    """The lock that every server process inherits."""

    path: Path

    def take(self) -> int | None:
        """Return an open, locked descriptor to be inherited, or None while any server process runs."""
        descriptor = _open(self.path)
        if _flock(descriptor):
            return descriptor
        os.close(descriptor)
        return None

    def is_free(self) -> bool:
        """Return whether no server process is left."""
        descriptor = self.take()
        if descriptor is None:
            return False
        os.close(descriptor)
        return True


def _open(path: Path) -> int:
    # 0600: no other account may flock it and block every start.
    return os.open(path, os.O_CREAT | os.O_RDWR, 0o600)


def _flock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
