"""What people look at."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from txsaga.checkback.questions import Remark
from txsaga.core.decision import Decision
from txsaga.flows.ballot import Polled
from txsaga.inspect.overview import (
    Audited,
    Backlog,
    BranchBacklog,
    Checks,
    Dispatch,
    DoubtView,
    LastRound,
    Reading,
    Undecided,
)
from txsaga.inspect.trace import Trace


class Overview(Protocol):
    """Figures and records for people; they change nothing, and nothing decides by them."""

    def undecided(self) -> Undecided:
        """Count the transactions without a decision, parked ones included."""

    def readings(self) -> Sequence[Reading]:
        """Tell how far each consumer group has read each of its topics, by name."""

    def dead_letters(self) -> Mapping[str, int]:
        """Count the dead letters of each group that has some."""

    def dispatch(self) -> Dispatch:
        """Tell of the last tick and of what waits for the next."""

    def decisions(self, txids: Collection[int]) -> Mapping[int, Decision]:
        """Return what stands of transactions, those without a decision left out."""

    def history(self, txid: int) -> Sequence[Audited]:
        """Return the audit rows of a transaction, oldest first."""

    def checks(self, txid: int) -> Checks | None:
        """Tell how a transaction stands on the list of doubts; None when it is not on it."""

    def remarks(self, txid: int) -> Sequence[Remark]:
        """Return what came of the checks of a transaction, the last ones, oldest first."""

    def backlogs(self) -> Sequence[Backlog]:
        """Tell what is undecided of each transactional producer group, by name."""

    def trace(self, txid: int) -> Trace | None:
        """Return everything durable of a transaction; None for an unknown one."""

    def doubts(
        self, *, limit: int, parked: bool = False, group: str | None = None, txid: int | None = None
    ) -> Sequence[DoubtView]:
        """Return what is on the list of doubts and undecided, by number: parked ones only, of one group, or one."""

    def polls(self, limit: int = 50) -> Sequence[tuple[int, Polled]]:
        """Return the ballots of open transactions with their votes, by transaction and name."""

    def branches(self) -> Sequence[BranchBacklog]:
        """Tell what is unfinished in each resource that takes part in two-phase commit, by name."""

    def last_round(self, role: str) -> LastRound | None:
        """Tell who led the last round of a role, and when it ended; None before the first."""
