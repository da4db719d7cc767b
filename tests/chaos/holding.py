"""
An observer of facts that holds one task of a DAG at its second fact, until somebody lets it go on.

    TXSAGA_OBSERVERS=tests.chaos.holding:hold TXSAGA_HOLD=folder     the file `folder/task` names the task

Whoever is killed while the task waits is killed in the middle of it. A task is held once: its retry goes on. It goes
on by itself after a minute, so that nothing waits for a test that died.
"""

from __future__ import annotations

import os
import time
from itertools import count
from pathlib import Path

from txsaga.core.facts import Fact

HOLD = "TXSAGA_HOLD"
PATIENCE = 60.0
SECOND = 2
_seen = count(1)


def hold(fact: Fact) -> None:
    """Wait at the second fact of the task that is to be held."""
    task, folder = os.environ.get("AIRFLOW_CTX_TASK_ID"), Path(os.environ.get(HOLD, "."))
    if task is None or task != told(folder, "task") or next(_seen) != SECOND:
        return
    stay(folder, fact)


def stay(folder: Path, fact: Fact) -> None:
    """Wait here, unless somebody was held before."""
    try:
        (folder / "held").touch(exist_ok=False)
    except FileExistsError:
        return
    (folder / "pid").write_text(f"{os.getpid()} {fact.name}")
    until = time.monotonic() + PATIENCE
    while not (folder / "go").exists() and time.monotonic() < until:
        time.sleep(0.02)


def told(folder: Path, name: str) -> str | None:
    """Return what a file of the folder says."""
    try:
        return (folder / name).read_text()
    except OSError:
        return None
