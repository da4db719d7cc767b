"""
The result of a program that does a step, handed to the task that waits for it before the step is done.

A task may die when the step is done and its result is nowhere yet: no retry does the step again, and nobody could hand
on what it returned. So the process writes the result, says so, and waits until the task has kept it. If nobody answers,
the step fails.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

PATIENCE = 60.0
"""Seconds in which a task keeps a result."""
HANDED_OVER = "txsaga: the result is handed over"
"""The line that says so."""
PAUSE = 0.02


def hand_over(result: object, place: Path, *, waits: bool) -> None:
    """Write a result; where a task waits for it, go on when it is kept."""
    fresh = place.with_name(f"{place.name}.{os.getpid()}")
    fresh.write_text(json.dumps(result, default=str), "utf-8")
    fresh.replace(place)
    if not waits:
        return
    sys.stdout.write(f"{HANDED_OVER}\n")
    sys.stdout.flush()
    until = time.monotonic() + PATIENCE
    while not kept_place(place).exists():
        if time.monotonic() > until:
            raise TimeoutError(f"the task has not kept the result in {PATIENCE:.0f} s; run the step again")
        time.sleep(PAUSE)


def kept_place(place: Path) -> Path:
    """Return the file by which a task says that it has kept a result."""
    return place.with_name(f"{place.name}.kept")
