"""
A reservation: what a try did under a branch's name, and how far its confirm or cancel has got.

Its arguments are durable before the try runs, so that any process can confirm or cancel it. Once it is closed, a late
try has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from txsaga.core.decision import Decision
from txsaga.flows.branch import BranchId


class ReservationState(StrEnum):
    """The state of a reservation."""

    OPEN = "open"  # the try may be under way, or was abandoned
    HELD = "held"  # the try is done: a yes
    CANCELLING = "cancelling"  # closed; the cancel has not answered yet
    CONFIRMED = "confirmed"
    CANCELLED = "cancelled"


class Reservation(NamedTuple):
    """A reservation as the store keeps it."""

    state: ReservationState
    tried: bool  # the try is known to be done
    arguments: Mapping[str, object]


class Reservations(Protocol):
    """Reservations by the names of their branches."""

    def begin(self, branch: BranchId, resource: str, arguments: Mapping[str, object]) -> bool:
        """Store the arguments of a try before it runs; False if the branch is known: tried before, or closed."""

    def hold(self, branch: BranchId) -> bool:
        """Record that the try is done; repeating this is no error. False if it is closed, or was never begun."""

    def find(self, branch: BranchId) -> Reservation | None:
        """Return the reservation of a branch."""

    def shut(self, branch: BranchId, resource: str) -> Reservation:
        """Close a reservation to later tries and yes votes, unless it is confirmed; return it as it is now.

        One that was never begun is cancelled at once, and stays so: a late try is refused.
        """

    def settle(self, branch: BranchId, decision: Decision) -> None:
        """Record that a held one is confirmed, or a closed one is cancelled; repeating this is no error."""

    def held(self, resource: str, store: str) -> Sequence[BranchId]:
        """Return, in order, what a resource holds, or still has to cancel, for the store with this uuid."""

    def drop(self, branch: BranchId) -> None:
        """Delete a reservation."""
