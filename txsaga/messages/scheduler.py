"""
The role of messages for later: commits what is due, by the store's clock.

Any number of copies may run anywhere at once. Without it messages for later wait, and nothing is lost.
"""

from __future__ import annotations

from txsaga.core import facts
from txsaga.core.kernel import Kernel
from txsaga.core.role_loop import Pace


class Scheduler:
    """Commits messages that are due; the dispatcher gives them out."""

    name = "scheduler"
    pace = Pace(0.005, 0.08)
    LIMIT = 1_000

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._schedule = kernel, kernel.store.schedule

    def run_once(self) -> int:
        """Commit what is due, one bounded round; return how many left the schedule."""
        with self._kernel.announce.around(facts.Scheduling):
            done = self._schedule.commit_due(self.LIMIT)
        if done:
            self._kernel.tell_decided()
        return done
