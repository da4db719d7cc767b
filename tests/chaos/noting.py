"""
An observer that notes every fact of a run's processes, and holds one of them at one fact until somebody lets it go on.

    TXSAGA_OBSERVERS=tests.chaos.noting:note TXSAGA_HOLD=folder      the file `folder/point` names the fact

A fact is named by where it happens and as the how many-th: `books/driver 7`. The facts of a run that nobody disturbs
are the points at which the next ones are held. It goes on by itself after a minute, so that nothing waits for a test
that died.
"""

from __future__ import annotations

import os
import sys
from itertools import count
from pathlib import Path

from tests.chaos.holding import HOLD, stay, told
from txsaga.core.facts import Fact

OWN_CLOCK = {
    "Enlisting",
    "Enlisted",
    "Holding",
    "Held",
    "Renewing",
    "Renewed",
    "Sweeping",
    "Swept",
    "Ticking",
    "Ticked",
}
"""Facts that come by the clock, and not by what a run does."""
_seen = count(1)


def note(fact: Fact) -> None:
    """Note a fact of a run, and wait where it is the one to be held at."""
    task, folder = os.environ.get("AIRFLOW_CTX_TASK_ID"), Path(os.environ.get(HOLD, "."))
    if task is None or fact.name in OWN_CLOCK:
        return
    point = f"{task}{'/driver' if 'txsaga.spark' in ' '.join(sys.orig_argv) else ''} {next(_seen)}"
    with (folder / "facts").open("a", encoding="utf-8") as facts:
        facts.write(f"{point} {fact.name}\n")
    if point == told(folder, "point"):
        stay(folder, fact)
