"""
A reservation: what a try did under the name of a branch, and how far its confirm or cancel is.

Its arguments are durable before the try runs, so that any process can confirm or cancel it. Once it is closed no late
try counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from txsaga.core.decision import Decision
from txsaga.flows.branch import BranchId


class ReservationState(StrEnum):
    """Where a reservation stands."""

    OPEN = "open"  # the try may be under way, or was left
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
        """Keep the arguments of a try before it runs; False when the branch is known: tried before, or closed."""

    def hold(self, branch: BranchId) -> bool:
        """Note that the try is done; again is no error. False when it is closed, or was never begun."""

    def find(self, branch: BranchId) -> Reservation | None:
        """Return the reservation of a branch."""

    def shut(self, branch: BranchId, resource: str) -> Reservation:
        """Let no try and no yes count from here on, unless it is confirmed; return how it stands now.

        What was never begun is cancelled at once, and stays so: a try that comes late is refused.
        """

    def settle(self, branch: BranchId, decision: Decision) -> None:
        """Note that what was held is confirmed, or what was closed is cancelled; again is no error."""

    def held(self, resource: str, store: str) -> Sequence[BranchId]:
        """Return, in order, what a resource holds, or still has to cancel, for a store of this uuid."""

    def drop(self, branch: BranchId) -> None:
        """Forget a reservation."""
