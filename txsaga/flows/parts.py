"""
The parts that a coordinated transaction has: one for each branch, and what their resources said to its outcome.

If what a resource said were lost here, a transaction that it has decided over would look like a plain success.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple

from txsaga.core.decision import Decision
from txsaga.errors import HeuristicCommit, HeuristicHazard, HeuristicMixed, HeuristicRollback, XaError
from txsaga.flows.branch import BranchId, Finish
from txsaga.flows.outcome_writer import noted
from txsaga.flows.ports import BranchOutcome
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
    """One branch, its resource, and the session that it has here."""

    branch: BranchId
    participant: Participant
    aux: bool = False  # a unit of an auxiliary lane
    session: EnlistedBranch | None = None
    statements: Sequence[Journalled] = ()  # of its journal, which are done with its vote
    driven: bool = False  # its user works with the driver's own connection
    used: bool = False  # a session was opened, whatever became of it
    asked: bool = False  # for its vote
    left: bool = False  # at its vote: it had nothing to write
    decided: bool = False  # its own commit was the decision
    opening: Lock = field(default_factory=Lock, repr=False, compare=False)

    @property
    def can_vote(self) -> bool:
        """Tell whether it can hold a yes."""
        return self.participant.capabilities.two_phase


class PhaseTwoResult(NamedTuple):
    """What resources said when they were told the decision."""

    notes: list[BranchOutcome]
    silent: dict[str, Exception]
    against: list[XaError]  # somebody had decided over our head

    def note(self, txid: int, part: BranchPart, decision: Decision, found: Finish) -> None:
        """Keep what one of them said."""
        self.notes.append(noted(txid, part.branch, decision, found, part.participant))
        if found in AGAINST:
            name = part.participant.name
            error = AGAINST[found](f"resource {name!r}: {self.notes[-1].why}; transaction {txid} says otherwise")
            logger.error("%s", error)
            self.against.append(error)
