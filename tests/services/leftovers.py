"""Finds processes that a test session started and did not stop.

Every child inherits a mark in its environment, also one that has left its parent. Linux only: elsewhere it
finds nothing. It never touches a process without the mark, unless it descends from this one.
"""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MARK = "TXSAGA_TEST_SESSION"
PATIENCE_SECONDS = 3.0
LIVES_AS_LONG_AS_PYTHON = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """One process that should be gone."""

    pid: int
    command: str


def wait_for_none(token: str) -> list[Leftover]:
    """Return what is still there after a short patience: a killed server needs a moment to go."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (left := list(leftovers(token))) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def leftovers(token: str) -> Iterator[Leftover]:
    """Yield the living processes of a session, this one left out."""
    mark = f"{MARK}={token}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = _state_and_parent(folder)
            ours = parent == os.getpid() or mark in (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue  # gone while we looked, or another account's
        if not ours or state == "Z" or int(folder.name) == os.getpid():
            continue
        if not any(name in command for name in LIVES_AS_LONG_AS_PYTHON):
            yield Leftover(pid=int(folder.name), command=command)


def kill(left: list[Leftover]) -> None:
    """End what was left, so that one bad test does not keep the machine busy."""
    for leftover in left:
        try:
            os.kill(leftover.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _state_and_parent(folder: Path) -> tuple[str, int]:
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    return fields[0], int(fields[1])
