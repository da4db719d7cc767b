"""
What tries reserved under the names of branches: kept beside the decisions, for resources that keep nothing themselves.

A row that is missing says that nothing was tried. If it were written after the try, a process that died between the
two would leave a reservation that nobody knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from txsaga.model.branch import BranchId
from txsaga.model.decision import Decision
from txsaga.model.reservation import Reservation


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
