"""
The roles of a store: dispatcher and partitions; check-back, scheduler and heartbeat have files of their own.

Each is one `run_once()`, and any number of copies may run anywhere at once. Without the dispatcher, decisions are final
but no consumer sees the messages. Without partitions, numbers run out of room after some hundred thousand transactions,
with a clear error.
"""

from __future__ import annotations

import logging
from functools import partial

from txsaga.core import facts
from txsaga.core.kernel import Kernel
from txsaga.core.role_loop import Pace
from txsaga.errors import TxSagaError
from txsaga.messages.scheduler import Scheduler
from txsaga.store.right import Right

logger = logging.getLogger("txsaga")
ROUNDS = 1_000
"""After so many `dispatch` stops, even if others go on deciding."""


class Dispatcher:
    """Assigns offsets to decisions: one tick per round."""

    name = "dispatcher"
    pace = Pace(0.005, 0.08, breath=0.01)  # a tick for each decision would cost more than the decision
    LIMIT = 5_000

    def __init__(self, kernel: Kernel) -> None:
        self._log, self._announce = kernel.store.log, kernel.announce
        self._overview, self._blocked = kernel.store.overview, tuple[int, ...]()

    def run_once(self) -> int:
        """Run one tick; return 0 when a rival was first."""
        with self._announce.around(facts.Ticking):
            ticked = self._log.tick(self.LIMIT)
        if ticked is None:
            return 0
        if ticked.blocked != self._blocked:
            self._blocked = ticked.blocked
            self._report()
        return ticked.chunks + int(ticked.more)

    def _report(self) -> None:
        if not self._blocked:
            logger.warning("no queue is blocked any longer", extra={"role": self.name})
            return
        logger.error(
            "blocked queues: %s; the log of each has a row that no tick wrote, at or after the queue's head; "
            "their messages wait, other queues continue; run `txsaga doctor` for the fix",
            ", ".join(self._overview.dispatch().blocked),
            extra={"role": self.name},
        )


def may_dispatch(kernel: Kernel) -> bool:
    """Return whether this login may dispatch; otherwise a running engine does."""
    return Right.ENGINE in kernel.store.rights


def dispatch(kernel: Kernel) -> None:
    """Give offsets to what is decided or due, so that it can be read even where no engine runs."""
    for role in (Scheduler(kernel), Dispatcher(kernel)) if may_dispatch(kernel) else ():
        for _ in range(ROUNDS):
            if not role.run_once():
                break


class PartitionRole:
    """Adds partitions ahead of the transaction numbers, drops unneeded ones, and deletes groups without members."""

    name = "partitions"
    pace = Pace(5.0, 10.0)  # fast producers use up room for a million numbers in half a minute
    AHEAD = 1_000_000

    def __init__(self, kernel: Kernel) -> None:
        self._log, self._groups, self._announce = kernel.store.log, kernel.store.groups, kernel.announce

    def run_once(self) -> int:
        """Add partitions, let groups expire and drop partitions; a step that fails does not prevent the others."""
        done, failures = 0, list[TxSagaError]()
        with self._announce.around(facts.Partitioning):
            extend = partial(self._log.extend_partitions, self.AHEAD)
            for step in (extend, self._expire, self._log.drop_partitions):
                try:
                    done += step()
                except TxSagaError as failure:
                    failures.append(failure)
            if failures:
                raise failures[0]
        return done

    def _expire(self) -> int:
        expired = self._groups.expire()
        for name in expired:
            logger.warning(
                "group %s expired: it had no member for longer than its setting `expires`; its position is deleted, "
                "its dead letters are kept",
                name,
                extra={"group": name},
            )
        return len(expired)
