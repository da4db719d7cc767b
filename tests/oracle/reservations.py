"""Reservations in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.oracle.home import Home
from txsaga.core.decision import Decision
from txsaga.flows.branch import BranchId
from txsaga.resources.reservations import Reservation, ReservationState
from txsaga.resources.reservations_store import Reservations

WAITING = (ReservationState.HELD, ReservationState.CANCELLING)
SETTLED = {
    Decision.COMMIT: (ReservationState.HELD, ReservationState.CONFIRMED),
    Decision.ROLLBACK: (ReservationState.CANCELLING, ReservationState.CANCELLED),
}


class MemoryReservations(Reservations):
    """Reservations of a store in memory."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._kept: dict[BranchId, tuple[str, Reservation]] = {}

    def begin(self, branch: BranchId, resource: str, arguments: Mapping[str, object]) -> bool:
        """Keep the arguments of a try before it runs."""
        with self._home.lock:
            if branch in self._kept:
                return False
            self._kept[branch] = resource, Reservation(ReservationState.OPEN, False, dict(arguments))
            return True

    def hold(self, branch: BranchId) -> bool:
        """Note that the try is done."""
        with self._home.lock:
            found = self.find(branch)
            if found is None or found.state not in (ReservationState.OPEN, ReservationState.HELD):
                return False
            self._put(branch, found._replace(state=ReservationState.HELD, tried=True))
            return True

    def find(self, branch: BranchId) -> Reservation | None:
        """Return the reservation of a branch."""
        return self._kept[branch][1] if branch in self._kept else None

    def shut(self, branch: BranchId, resource: str) -> Reservation:
        """Let no try and no yes count from here on."""
        with self._home.lock:
            cancelled = Reservation(ReservationState.CANCELLED, False, {})
            _, found = self._kept.setdefault(branch, (resource, cancelled))
            if found.state in (ReservationState.OPEN, ReservationState.HELD):
                found = found._replace(state=ReservationState.CANCELLING)
                self._put(branch, found)
            return found

    def settle(self, branch: BranchId, decision: Decision) -> bool:
        """Note that what was held is confirmed, or what was closed is cancelled; tell whether that was new."""
        source, target = SETTLED[decision]
        with self._home.lock:
            found = self.find(branch)
            if found is None or found.state is not source:
                return False
            self._put(branch, found._replace(state=target))
            return True

    def held(self, resource: str, store: str) -> Sequence[BranchId]:
        """Return, in order, what a resource holds for a store."""
        with self._home.lock:
            rows = sorted(self._kept.items())
        return [
            branch
            for branch, (name, found) in rows
            if name == resource and branch.store == store and found.state in WAITING
        ]

    def drop(self, branch: BranchId) -> None:
        """Forget a reservation."""
        with self._home.lock:
            self._kept.pop(branch, None)

    def _put(self, branch: BranchId, found: Reservation) -> None:
        self._kept[branch] = self._kept[branch][0], found
