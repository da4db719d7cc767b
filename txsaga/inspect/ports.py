"""The port for people's views."""

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
    """Figures and records for people; reading changes nothing, and nothing is decided by them."""

    def undecided(self) -> Undecided:
        """Count the transactions without a decision, parked ones included."""

    def readings(self) -> Sequence[Reading]:
        """Return how far each consumer group has read each of its topics, by name."""

    def dead_letters(self) -> Mapping[str, int]:
        """Count the dead letters of each group that has some."""

    def dispatch(self) -> Dispatch:
        """Return the last tick and what waits for the next one."""

    def decisions(self, txids: Collection[int]) -> Mapping[int, Decision]:
        """Return the decisions of transactions, without the undecided ones."""

    def history(self, txid: int) -> Sequence[Audited]:
        """Return the audit rows of a transaction, oldest first."""

    def checks(self, txid: int) -> Checks | None:
        """Return the state of a transaction on the list of doubts; None if it is not on it."""

    def remarks(self, txid: int) -> Sequence[Remark]:
        """Return the results of the latest checks of a transaction, oldest first."""

    def backlogs(self) -> Sequence[Backlog]:
        """Return what is undecided in each transactional producer group, by name."""

    def trace(self, txid: int) -> Trace | None:
        """Return everything durable about a transaction; None for an unknown one."""

    def doubts(
        self, *, limit: int, parked: bool = False, group: str | None = None, txid: int | None = None
    ) -> Sequence[DoubtView]:
        """Return undecided entries of the list of doubts, by number: parked ones only, of one group, or one."""

    def polls(self, limit: int = 50) -> Sequence[tuple[int, Polled]]:
        """Return the ballots of open transactions with their votes, by transaction and name."""

    def branches(self) -> Sequence[BranchBacklog]:
        """Return what is unfinished in each resource that takes part in two-phase commit, by name."""

    def last_round(self, role: str) -> LastRound | None:
        """Return who led the last round of a role, and when it ended; None before the first."""
