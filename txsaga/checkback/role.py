"""
Check-back: finds undecided transactions, and settles each by what can be known about it.

A round first checks whether there is work, and writes nothing if not. It takes the lead, lists what is new, and asks in
this order: the run of a flow (R5), the evidence (each database in one query, fenced one by one), and where only a
checker knows, a live member of the producer group, by a question that is counted before it is asked. Every doubt is
handled separately: one that can't even be read is parked with its error, and the round goes on.

    decided by what is known                  written at once, with its audit row
    no answer                                 put off, not counted
    its settlement failed                     put off, counted
    only a checker knows                      asked
    out of checks, or of its total time       parked; or rolled back, where its group sets that and no evidence could
                                              contradict

If it never runs, half messages of dead producers stay invisible, and their partitions are never dropped.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from contextlib import suppress
from itertools import count

from txsaga.checkback.heartbeat import Lease
from txsaga.checkback.profile import CheckProfile
from txsaga.checkback.round import Round, Turns
from txsaga.core.kernel import Kernel
from txsaga.core.role_loop import Pace
from txsaga.errors import StoreError

logger = logging.getLogger("txsaga")


class CheckBack:
    """One round after the other, while no other process has the lead."""

    name = "check-back"
    pace = Pace(0.1, 1.0)
    LIMIT = 2_000

    def __init__(self, kernel: Kernel, profile: CheckProfile | None = None, limit: int = LIMIT) -> None:
        self._kernel, self._limit = kernel, limit
        self._profile = profile or CheckProfile()
        self._lease = Lease(kernel, self.name)
        self._turns: Turns = defaultdict(count)
        self.done: Counter[str] = Counter()

    def run_once(self) -> int:
        """Sweep, then settle or ask about what is due; return how many made progress, with details in `done`."""
        self.done = Counter()
        if not self._kernel.store.doubts.waiting(self._profile.min_age) or not self._lease.take():
            return 0
        try:
            return self._round()
        finally:
            with suppress(StoreError):  # it expires by itself
                self._lease.give_back()

    def _round(self) -> int:
        begun = time.monotonic()
        logger.info("check round begins", extra={"role": self.name})
        self.done = Round(self._kernel, self._profile, self._lease, self._turns).run(self._limit)
        told = ", ".join(f"{number} {what}" for what, number in sorted(self.done.items())) or "nothing due"
        logger.info("check round ends after %.3f s: %s", time.monotonic() - begun, told, extra={"role": self.name})
        return self.done.total() - self.done["put off"]
