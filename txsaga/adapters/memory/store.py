"""The store in memory, put together."""

from __future__ import annotations

from collections.abc import Sequence

from txsaga.adapters.clock import Clock, wall_clock
from txsaga.adapters.memory.branches import MemoryBranches
from txsaga.adapters.memory.claims import MemoryClaims
from txsaga.adapters.memory.doubts import MemoryDoubts
from txsaga.adapters.memory.flows import MemoryFlows
from txsaga.adapters.memory.groups import MemoryDeadLetters, MemoryGroups
from txsaga.adapters.memory.halves import MemoryHalves
from txsaga.adapters.memory.home import Home
from txsaga.adapters.memory.leases import MemoryLeases
from txsaga.adapters.memory.ledger import MemoryLedgers
from txsaga.adapters.memory.log import MemoryLog
from txsaga.adapters.memory.names import Names
from txsaga.adapters.memory.overview import MemoryOverview
from txsaga.adapters.memory.questions import MemoryQuestions
from txsaga.adapters.memory.queues import MemoryQueues
from txsaga.adapters.memory.registry import MemoryRegistry
from txsaga.adapters.memory.reservations import MemoryReservations
from txsaga.adapters.memory.rows import Audit
from txsaga.adapters.memory.schedule import MemorySchedule
from txsaga.adapters.memory.steps import MemorySteps
from txsaga.model.rights import EVERY_RIGHT


class MemoryStore:
    """A store that is gone with its process; any number of threads may share it."""

    rights, waits_in_loops = EVERY_RIGHT, False

    def __init__(self, clock: Clock = wall_clock, *, rejecting: bool = False) -> None:
        self._home = home = Home(clock, rejecting=rejecting)
        names, self.leases = Names(home), MemoryLeases(home)
        self.doubts = doubts = MemoryDoubts(home, names, self.leases)
        self.halves = MemoryHalves(home, names)
        self.questions = MemoryQuestions(home, doubts, self.leases, self.halves.views)
        self.ledgers = MemoryLedgers(home, names)
        self.branches = MemoryBranches(home, names)
        self.steps = MemorySteps(home, names, self.branches)
        self.reservations = MemoryReservations(home)
        self.flows = MemoryFlows(home)
        self.log = MemoryLog(home, names)
        self.queues = MemoryQueues(home, names)
        self.claims = MemoryClaims(home, self.log)
        self.groups = MemoryGroups(home, self.queues)
        self.dead_letters = MemoryDeadLetters(home, names, self.groups)
        self.schedule = MemorySchedule(home)
        self.registry = MemoryRegistry(home, names, doubts)
        self.overview = MemoryOverview(home, names, doubts, self.log, self.queues, self.leases)

    @property
    def audits(self) -> Sequence[Audit]:
        """The audit rows of decisions and forced actions, oldest first."""
        return tuple(self._home.kept.audits)

    def close(self) -> None:
        """Do nothing: there is no connection to give back."""
