"""
Check-back: finds transactions that nobody decided, and has each settled by what can be known about it.

A round looks first and writes nothing where there is nothing to do. It takes the lead, lists what is new, and asks in
this order: the run of a flow (R5), the evidence (each database in one question, fenced one by one), and where only a
word can tell, a live member of the producer group, by a question that is counted before it is put. Every doubt is on
its own: one that can't even be looked at is parked with its error, and the round goes on.

    decided by what is known                  written at once, its audit row with it
    nobody was there to say                   put off, not counted
    its settlement failed                     put off, counted
    only a word can tell                      asked
    out of checks, or of its total time       parked; or rolled back, where its group says so and no evidence could
                                              contradict

If it never runs, halves of dead producers stay invisible, and their partitions are never dropped.
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
    """One round after the other, while nobody else has the lead."""

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
        """Sweep, then settle or ask about what is due; return how many came further, `done` tells how."""
        self.done = Counter()
        if not self._kernel.store.doubts.waiting(self._profile.min_age) or not self._lease.take():
            return 0
        try:
            return self._round()
        finally:
            with suppress(StoreError):  # it runs out by itself
                self._lease.give_back()

    def _round(self) -> int:
        begun = time.monotonic()
        logger.info("check round begins", extra={"role": self.name})
        self.done = Round(self._kernel, self._profile, self._lease, self._turns).run(self._limit)
        told = ", ".join(f"{number} {what}" for what, number in sorted(self.done.items())) or "nothing due"
        logger.info("check round ends after %.3f s: %s", time.monotonic() - begun, told, extra={"role": self.name})
        return self.done.total() - self.done["put off"]
