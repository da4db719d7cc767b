"""
The role for delayed messages: commits due messages, by the store's clock.

Any number of copies may run anywhere at once. Without it delayed messages wait, and nothing is lost.
"""

from __future__ import annotations

from txsaga.core import facts
from txsaga.core.kernel import Kernel
from txsaga.core.role_loop import Pace


class Scheduler:
    """Commits due messages; the dispatcher publishes them."""

    name = "scheduler"
    pace = Pace(0.005, 0.08)
    LIMIT = 1_000

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._schedule = kernel, kernel.store.schedule

    def run_once(self) -> int:
        """Commit due messages in one bounded round; return how many left the schedule."""
        with self._kernel.announce.around(facts.Scheduling):
            done = self._schedule.commit_due(self.LIMIT)
        if done:
            self._kernel.tell_decided()
        return done
