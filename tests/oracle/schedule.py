"""
Messages for later in memory.

If nobody runs this, they wait, and nothing is lost.
"""

from __future__ import annotations

from tests.oracle.home import Home
from tests.oracle.rows import Op
from txsaga.core.decision import Decision
from txsaga.messages.halves_store import Schedule


class MemorySchedule(Schedule):
    """Commits what is due, each message in a step of its own: decisions of one step are sorted by their numbers."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def commit_due(self, limit: int) -> int:
        """Commit up to `limit` messages in the order in which they are due."""
        with self._home.lock:
            now = self._home.now()
            due = sorted((at, txid) for txid, at in self._home.kept.scheduled.items() if at <= now)[:limit]
            for _, txid in due:
                with self._home.writing() as kept:
                    del kept.scheduled[txid]
                    if txid not in kept.ops:
                        kept.decide(Op(txid, Decision.COMMIT, False))
            return len(due)
