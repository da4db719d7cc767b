"""
The parts of a coordinated transaction, one for each branch, and what their resources answered to its outcome.

If an answer were lost here, a transaction that a resource decided differently would look like a plain success.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple

from txsaga.core.decision import Decision
from txsaga.errors import HeuristicCommit, HeuristicHazard, HeuristicMixed, HeuristicRollback, XaError
from txsaga.flows.batches import noted
from txsaga.flows.branch import BranchId, Finish
from txsaga.flows.calls import BranchOutcome
from txsaga.flows.step_records import Journalled
from txsaga.resources.participant import EnlistedBranch, Participant

logger = logging.getLogger("txsaga")

AGAINST = {
    Finish.COMMITTED: HeuristicCommit,
    Finish.ROLLED_BACK: HeuristicRollback,
    Finish.HAZARD: HeuristicHazard,
    Finish.MIXED: HeuristicMixed,
}


@dataclass(slots=True)
class BranchPart:
    """One branch, its resource, and its session in this process."""

    branch: BranchId
    participant: Participant
    aux: bool = False  # a unit of an auxiliary lane
    session: EnlistedBranch | None = None
    statements: Sequence[Journalled] = ()  # of its journal; they run at its vote
    driven: bool = False  # the user works with the driver's own connection
    used: bool = False  # a session was opened, even if it is closed by now
    asked: bool = False  # asked for its vote
    left: bool = False  # left at its vote, having written nothing
    decided: bool = False  # its own commit was the decision
    opening: Lock = field(default_factory=Lock, repr=False, compare=False)

    @property
    def can_vote(self) -> bool:
        """Return whether it can hold a yes vote."""
        return self.participant.capabilities.two_phase


class PhaseTwoResult(NamedTuple):
    """What resources answered in the second phase."""

    notes: list[BranchOutcome]
    silent: dict[str, Exception]
    against: list[XaError]  # heuristic outcomes: decided outside txsaga

    def note(self, txid: int, part: BranchPart, decision: Decision, found: Finish) -> None:
        """Record the answer of one resource."""
        self.notes.append(noted(txid, part.branch, decision, found, part.participant))
        if found in AGAINST:
            name = part.participant.name
            error = AGAINST[found](f"resource {name!r}: {self.notes[-1].why}; transaction {txid} says otherwise")
            logger.error("%s", error)
            self.against.append(error)
