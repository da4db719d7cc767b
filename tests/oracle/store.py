"""The store in memory, put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from tests.oracle.claims import MemoryClaims
from tests.oracle.doubts import MemoryDoubts
from tests.oracle.flows import MemoryFlows
from tests.oracle.groups import MemoryDeadLetters, MemoryGroups
from tests.oracle.halves import MemoryHalves
from tests.oracle.home import Home
from tests.oracle.leases import MemoryLeases
from tests.oracle.ledger import MemoryLedgers
from tests.oracle.log import MemoryLog
from tests.oracle.names import Names
from tests.oracle.overview import MemoryOverview
from tests.oracle.questions import MemoryQuestions
from tests.oracle.queues import MemoryQueues
from tests.oracle.registry import MemoryRegistry
from tests.oracle.reservations import MemoryReservations
from tests.oracle.rows import Audit
from tests.oracle.schedule import MemorySchedule
from tests.oracle.work import MemoryWork
from txsaga.core.clock import wall_clock
from txsaga.lake.table import TableName
from txsaga.store.right import EVERY_RIGHT
from txsaga.store.store import Store


class MemoryStore(Store):
    """A store that is gone with its process; any number of threads may share it."""

    rights = EVERY_RIGHT

    def __init__(self, clock: Callable[[], datetime] = wall_clock, *, rejecting: bool = False) -> None:
        self._home = home = Home(clock, rejecting=rejecting)
        names, self.leases = Names(home), MemoryLeases(home)
        self.doubts = doubts = MemoryDoubts(home, names, self.leases)
        self.halves = MemoryHalves(home, names)
        self.questions = MemoryQuestions(home, doubts, self.leases, self.halves.views)
        self.ledgers = MemoryLedgers(home, names)
        self.work = MemoryWork(home, names)
        self.reservations = MemoryReservations(home)
        self.flows = MemoryFlows(home)
        self.log = MemoryLog(home, names)
        self.queues = MemoryQueues(home, names, self.log)
        self.groups = MemoryGroups(home, self.queues)
        self.claims = MemoryClaims(home, self.log, self.groups)
        self.dead_letters = MemoryDeadLetters(home, names, self.groups)
        self.schedule = MemorySchedule(home)
        self.registry = MemoryRegistry(home, names, self.log)
        self.overview = MemoryOverview(home, names, doubts, self.log, self.queues, self.leases)

    @property
    def pointers(self) -> Mapping[TableName, str]:
        """The newest metadata of each table."""
        return dict(self._home.kept.pointers)

    @property
    def audits(self) -> Sequence[Audit]:
        """The audit rows of decisions and forced actions, oldest first."""
        return tuple(self._home.kept.audits)

    def close(self) -> None:
        """Do nothing: there is no connection to give back."""
