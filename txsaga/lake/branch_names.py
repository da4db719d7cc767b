"""
The names of branches: each contains its transaction, so that the collector knows which transaction to look up.

Only letters, digits and _: every engine accepts such a name as it is. Each attempt has its own names (R4): if two
shared one, an abandoned driver would keep writing to a branch that another one publishes.
"""

from __future__ import annotations

import re

from txsaga.lake.ports import TablePlace

BRANCH = re.compile(r"txsaga_([0-9a-f]{32}_[0-9a-f]+_[0-9a-f]+)_\d+_\d+_\d+")
MARK = "txsaga-branch"
"""The snapshot property in which another engine names the attempt that it wrote for."""
APPLICATION = "spark.app.id"
"""The snapshot property in which Spark names the application that wrote it."""


def branch_name(place: TablePlace) -> str:
    """Return the name of the branch of a place."""
    return f"txsaga_{place.transaction.replace('-', '_')}_{place.part}_{place.attempt}_{place.number}"


def transaction_of(branch: str) -> str | None:
    """Return the transaction that a branch was begun for; None if it is not a branch of txsaga."""
    found = BRANCH.fullmatch(branch)
    return None if found is None else found[1].replace("_", "-")


def mark_of(branch: str) -> str:
    """Return the mark of an attempt's snapshots: the branch name without its number."""
    return branch.rpartition("_")[0]
