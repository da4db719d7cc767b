"""
A branch: the work of one resource in one coordinated transaction, and its state.

A branch is named before its work begins, so that recovery can find it. Its name contains the attempt: only the attempts
that the decision names are committed, anything else found prepared is rolled back (R9).
"""

from __future__ import annotations

import re
from datetime import datetime
from enum import Enum, StrEnum, auto
from typing import NamedTuple

from txsaga.core.lifecycle import Lifecycle
from txsaga.errors import UnknownTransaction

PREFIX = "txsaga"
_GID = re.compile(rf"{PREFIX}:([0-9a-f]{{32}}-[0-9a-f]{{1,8}}-[0-9a-f]{{1,16}}):([0-9]{{1,5}})\.([0-9]{{1,9}})")


class BranchId(NamedTuple):
    """One attempt of one branch of a transaction, as external systems name it."""

    transaction: str  # as formatted by `StoreId.transaction`
    number: int
    attempt: int = 1

    @property
    def gid(self) -> str:
        """Its name in a resource that takes a single text; shorter than PostgreSQL's limit."""
        return f"{PREFIX}:{self.transaction}:{self.qualifier}"

    @property
    def qualifier(self) -> str:
        """What distinguishes it from the other branches of its transaction."""
        return f"{self.number}.{self.attempt}"

    @property
    def store(self) -> str:
        """The uuid of the store that coordinates it, as 32 hexadecimal digits."""
        return self.transaction[:32]

    @property
    def evidence(self) -> str:
        """The branch name in the evidence row that its own commit writes."""
        return f"xa:{self.qualifier}"

    @classmethod
    def parse(cls, gid: str) -> BranchId:
        """Parse what `gid` wrote; anything else prepared in a resource is not ours."""
        found = _GID.fullmatch(gid)
        if found is None:
            raise UnknownTransaction(f"{gid!r} is not the name of a branch of txsaga")
        return cls(found[1], int(found[2]), int(found[3]))


class Vote(Enum):
    """A branch's answer to prepare; a no is an error with its code."""

    PREPARED = auto()
    READ_ONLY = auto()  # nothing was changed: it is over, without a second phase


class Finish(Enum):
    """What the second phase found."""

    DONE = auto()
    COMMITTED = auto()  # already committed, though the decision is ROLLBACK
    ROLLED_BACK = auto()  # already rolled back, though the decision is COMMIT
    MIXED = auto()  # part of it was committed, part rolled back
    HAZARD = auto()  # the outcome can't be determined


class BranchState(StrEnum):
    """The state of a branch."""

    ACTIVE = "active"  # named; its work may be in progress
    ENDED = "ended"  # voted yes in its step's process; the decision has yet to name it
    PREPARED = "prepared"  # voted yes, and the decision names it
    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    HEURISTIC_COMMITTED = "heuristic_committed"
    HEURISTIC_ROLLED_BACK = "heuristic_rolled_back"
    HEURISTIC_MIXED = "heuristic_mixed"
    HEURISTIC_HAZARD = "heuristic_hazard"
    FORGOTTEN = "forgotten"


class BranchEvent(StrEnum):
    """What changes a branch's state."""

    END = "end"  # the step of a flow is over and held prepared
    PREPARE = "prepare"  # the decision, or the seal before it, names it as prepared
    LEAVE = "leave"  # likewise, as read-only
    COMMIT = "commit"
    ROLL_BACK = "roll_back"
    FIND_COMMITTED = "find_committed"
    FIND_ROLLED_BACK = "find_rolled_back"
    FIND_MIXED = "find_mixed"
    FIND_HAZARD = "find_hazard"
    FORGET = "forget"


_OPEN = (BranchState.ACTIVE, BranchState.ENDED, BranchState.PREPARED)
OPEN = frozenset(_OPEN)
"""States in which the resource may still hold something."""
OVER = frozenset({BranchState.COMMITTED, BranchState.ROLLED_BACK, BranchState.FORGOTTEN})
"""States in which the resource is never asked again."""
_FOUND = {
    BranchEvent.FIND_COMMITTED: BranchState.HEURISTIC_COMMITTED,
    BranchEvent.FIND_ROLLED_BACK: BranchState.HEURISTIC_ROLLED_BACK,
    BranchEvent.FIND_MIXED: BranchState.HEURISTIC_MIXED,
    BranchEvent.FIND_HAZARD: BranchState.HEURISTIC_HAZARD,
}

HEURISTIC = frozenset(_FOUND.values())
"""States that contradict the decision, until the branch is forgotten."""
HEURISTIC_EVENTS = frozenset(_FOUND)

BRANCH: Lifecycle[BranchState, BranchEvent] = Lifecycle(
    {
        (BranchState.ACTIVE, BranchEvent.END): BranchState.ENDED,
        (BranchState.ENDED, BranchEvent.PREPARE): BranchState.PREPARED,
        (BranchState.ACTIVE, BranchEvent.PREPARE): BranchState.PREPARED,
        (BranchState.ACTIVE, BranchEvent.LEAVE): BranchState.COMMITTED,
        (BranchState.PREPARED, BranchEvent.COMMIT): BranchState.COMMITTED,
        **{(state, BranchEvent.ROLL_BACK): BranchState.ROLLED_BACK for state in _OPEN},
        **{(state, event): found for state in _OPEN for event, found in _FOUND.items()},
        **{(state, BranchEvent.FORGET): BranchState.FORGOTTEN for state in _FOUND.values()},
    }
)

NOTHING_DONE = "nothing was done in it"
"""Why a branch that held nothing is over: it was read-only at its vote, or never used."""

EVENT_OF = {
    Finish.COMMITTED: BranchEvent.FIND_COMMITTED,
    Finish.ROLLED_BACK: BranchEvent.FIND_ROLLED_BACK,
    Finish.MIXED: BranchEvent.FIND_MIXED,
    Finish.HAZARD: BranchEvent.FIND_HAZARD,
}
"""The branch event for each other outcome that a second phase found."""


class Branch(NamedTuple):
    """A branch as stored."""

    txid: int
    number: int
    attempt: int
    resource: str
    state: BranchState
    at: datetime
    why: str = ""
    recorded: int = 0  # the number of the resource, pinned by its uuid
    aux: bool = False  # a unit of an auxiliary lane: committed or rolled back by itself

    @property
    def unfinished(self) -> bool:
        """Return whether its resource may still hold something of it."""
        return self.state in OPEN
