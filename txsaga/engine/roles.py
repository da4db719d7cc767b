"""
The roles of a store: dispatcher, check-back, partitions; the scheduler has a file of its own. Each is one `run_once()`.

Any number of copies may run anywhere at once. Dispatcher: without it decisions stand but nobody sees the
messages. Check-back: without it halves of dead producers stay undecided. Partitions: without it numbers
run out of room after some hundred thousand transactions, with a clear error.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from txsaga.engine.kernel import Kernel
from txsaga.engine.settle import Checked
from txsaga.errors import StoreUnavailable
from txsaga.model import facts
from txsaga.model.arguments import check_count, check_duration
from txsaga.model.lifecycle import TRANSACTION, TxEvent
from txsaga.model.records import Doubt

logger = logging.getLogger("txsaga")

LONGEST = timedelta(days=36_500)


class Role(Protocol):
    """Something that is done again and again."""

    @property
    def name(self) -> str:
        """What logs call it."""

    @property
    def pause(self) -> float:
        """Seconds to wait after a round that found nothing."""

    def run_once(self) -> int:
        """Do one bounded round; return how much was done."""


class Dispatcher:
    """Gives offsets to decisions: one tick per round."""

    name = "dispatcher"
    pause = 0.005
    LIMIT = 5_000

    def __init__(self, kernel: Kernel) -> None:
        self._log, self._announce = kernel.store.log, kernel.announce

    def run_once(self) -> int:
        """Run one tick; nothing was done where a rival was first."""
        with self._announce.around(facts.Ticking):
            ticked = self._log.tick(self.LIMIT)
        return 0 if ticked is None else ticked.chunks + int(ticked.more)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckProfile:
    """When and how often to ask; the defaults are those of the classic documents."""

    interval: timedelta = timedelta(seconds=60)
    min_age: timedelta = timedelta(seconds=6)
    max_checks: int = 15

    def __post_init__(self) -> None:
        """Refuse what would stop every check."""
        check_duration(self.interval, "interval", LONGEST)
        check_duration(self.min_age, "min_age", LONGEST)
        check_count(self.max_checks, "max_checks")


PROFILES = {"classic": CheckProfile(), "5x": CheckProfile(interval=timedelta(seconds=30))}
"""By the release whose defaults they are."""


class CheckBack:
    """Finds halves that nobody decided and settles them by what can be known."""

    name = "check-back"

    def __init__(self, kernel: Kernel, profile: CheckProfile | None = None, limit: int = 1_000) -> None:
        self._kernel, self._limit = kernel, limit
        self._profile = profile or CheckProfile()
        self.pause = self._profile.min_age.total_seconds() / 2

    def run_once(self) -> int:
        """Sweep, then settle what is due; return how many were settled."""
        log = self._kernel.store.log
        with self._kernel.announce.around(facts.Sweeping):
            log.sweep(self._profile.min_age)
        settled = [doubt.txid for doubt in log.doubts(self._limit) if self._settle(doubt)]
        if settled:
            with self._kernel.announce.around(facts.Clearing, *settled):
                log.settled(settled)
        return len(settled)

    def _settle(self, doubt: Doubt) -> bool:
        checked = self._checked(doubt)
        if checked.standing is not None:
            return True
        if checked.counted and doubt.checks + 1 >= self._profile.max_checks:
            self._park(doubt, checked.why)
        else:
            self._postpone(doubt, checked)
        return False

    def _checked(self, doubt: Doubt) -> Checked:
        """Check one doubt; a poisoned one must not stop the round, and a store that is away stops it soon enough."""
        try:
            return self._kernel.settler.check(doubt)
        except StoreUnavailable as silent:
            return Checked(standing=None, why=str(silent), counted=False)
        except Exception as failure:
            logger.exception("check of transaction %d failed", doubt.txid, extra={"txid": doubt.txid})
            return Checked(standing=None, why=f"{type(failure).__name__}: {failure}")

    def _postpone(self, doubt: Doubt, checked: Checked) -> None:
        with self._kernel.announce.around(facts.Postponing, doubt.txid, about=checked.why):
            self._kernel.store.log.postpone(doubt.txid, self._profile.interval, counted=checked.counted)

    def _park(self, doubt: Doubt, why: str) -> None:
        logger.error("transaction %d is out of checks and parked: %s", doubt.txid, why, extra={"txid": doubt.txid})
        with self._kernel.announce.around(facts.Parking, doubt.txid, about=why):
            if doubt.keyed:
                self._park_life(doubt.txid)
            self._kernel.store.log.park(doubt.txid, why)

    def _park_life(self, txid: int) -> None:
        with self._kernel.store.ledgers.open() as ledger:
            life = ledger.lock(txid)
            # A kill in between leaves a parked life on the list, and a decision may have come first.
            if life is not None and life.state in TRANSACTION.sources(TxEvent.PARK):
                ledger.move(txid, TxEvent.PARK)


class Partitions:
    """Makes room for numbers ahead of time, drops what nobody needs, and forgets groups that nobody is seen in."""

    name = "partitions"
    pause = 5.0
    AHEAD = 1_000_000

    def __init__(self, kernel: Kernel) -> None:
        self._log, self._groups, self._announce = kernel.store.log, kernel.store.groups, kernel.announce

    def run_once(self) -> int:
        """Let groups expire, then add and drop partitions."""
        with self._announce.around(facts.Partitioning):
            expired = self._groups.expire()
            for name in expired:
                logger.warning(
                    "group %s expired: nobody was seen in it for as long as it says; where it stood is forgotten, "
                    "its dead letters stay",
                    name,
                    extra={"group": name},
                )
            return len(expired) + self._log.extend_partitions(self.AHEAD) + self._log.drop_partitions()
