"""
The names of branches: whose they are can be read off them, so that whoever collects knows whom to ask about.

Letters, digits and _ alone: every engine takes such a name as it is. Each attempt has names of its own (R4); if two
shared one, a driver that was given up would go on writing to what another one publishes.
"""

from __future__ import annotations

import re

from txsaga.lake.ports import TablePlace

BRANCH = re.compile(r"txsaga_([0-9a-f]{32}_[0-9a-f]+_[0-9a-f]+)_\d+_\d+_\d+")
MARK = "txsaga-branch"
"""The key under which an engine's own snapshots say for which attempt they were written."""
APPLICATION = "spark.app.id"
"""The key under which Spark's say which application wrote them."""


def branch_name(place: TablePlace) -> str:
    """Name the branch of a place."""
    return f"txsaga_{place.transaction.replace('-', '_')}_{place.part}_{place.attempt}_{place.number}"


def transaction_of(branch: str) -> str | None:
    """Return the transaction that a branch was begun for; None for one that is somebody else's."""
    found = BRANCH.fullmatch(branch)
    return None if found is None else found[1].replace("_", "-")


def mark_of(branch: str) -> str:
    """Return what snapshots are marked with: the attempt, whatever number the branch has in it."""
    return branch.rpartition("_")[0]
