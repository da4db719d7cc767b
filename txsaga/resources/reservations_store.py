"""
Reservations on PostgreSQL: each step changes one row in a commit of its own.

Every step may run twice: it is retried after a lost answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from txsaga.core.decision import Decision
from txsaga.core.retry import patiently
from txsaga.errors import OutcomeUnknown
from txsaga.flows.branch import BranchId
from txsaga.resources.reservations import Reservation, ReservationState
from txsaga.store import sql_files
from txsaga.store.connection import NamespaceStore, Run

SQL = sql_files.read("resources/sql/reservation.sql")
PATIENCE = 5.0  # seconds to retry after a lost answer; recovery has more
SETTLED = {
    Decision.COMMIT: {"source": ReservationState.HELD, "target": ReservationState.CONFIRMED},
    Decision.ROLLBACK: {"source": ReservationState.CANCELLING, "target": ReservationState.CANCELLED},
}

Answer = TypeVar("Answer")


class Reservations(NamespaceStore):
    """Reservations of one namespace."""

    def begin(self, branch: BranchId, resource: str, arguments: Mapping[str, object]) -> bool:
        """Store the arguments of a try before it runs; False if the branch is known: tried before, or closed."""
        row = _row(branch, resource, ReservationState.OPEN, arguments)
        return self._changed(SQL["begin"], **row) == 1  # never retried: a try that may have run is not run again

    def hold(self, branch: BranchId) -> bool:
        """Record that the try is done; repeating this is no error. False if it is closed, or was never begun."""
        return self._done(lambda run: run(SQL["hold"], gid=branch.gid).rowcount) == 1

    def find(self, branch: BranchId) -> Reservation | None:
        """Return the reservation of a branch."""
        with self._open() as run:
            return _found(run, branch)

    def shut(self, branch: BranchId, resource: str) -> Reservation:
        """Close a reservation to later tries and yes votes, unless it is confirmed; return it as it is now.

        One that was never begun is cancelled at once, and stays so: a late try is refused.
        """

        def step(run: Run) -> Reservation:
            run(SQL["begin"], **_row(branch, resource, ReservationState.CANCELLED, {}))
            run(SQL["close"], gid=branch.gid)
            found = _found(run, branch)
            assert found is not None
            return found

        return self._done(step)

    def settle(self, branch: BranchId, decision: Decision) -> bool:
        """Record that a held one is confirmed, or a closed one is cancelled; False if that was recorded already."""
        return self._done(lambda run: run(SQL["settle"], gid=branch.gid, **SETTLED[decision]).rowcount) == 1

    def held(self, resource: str, store: str) -> Sequence[BranchId]:
        """Return, in order, what a resource holds, or still has to cancel, for the store with this uuid."""
        found = [BranchId.parse(gid) for (gid,) in self._rows(SQL["waiting"], resource=resource)]
        return sorted(branch for branch in found if branch.store == store)

    def drop(self, branch: BranchId) -> None:
        """Delete a reservation."""
        self._done(lambda run: run(SQL["drop"], gid=branch.gid))

    def _done(self, step: Callable[[Run], Answer]) -> Answer:
        def once() -> Answer:
            with self._open() as run:
                return step(run)

        try:
            return once()
        except OutcomeUnknown:
            return patiently(once, PATIENCE)


def _row(
    branch: BranchId, resource: str, state: ReservationState, arguments: Mapping[str, object]
) -> dict[str, object]:
    txid = int(branch.transaction.rpartition("-")[2], 16)
    said = json.dumps(dict(arguments))
    return {"gid": branch.gid, "txid": txid, "resource": resource, "state": state, "arguments": said}


def _found(run: Run, branch: BranchId) -> Reservation | None:
    row = run(SQL["find"], gid=branch.gid).one_or_none()
    return None if row is None else Reservation(ReservationState(row.state), *row[1:])
