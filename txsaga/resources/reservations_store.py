"""
Reservations on PostgreSQL: each step changes one row in a commit of its own.

Every step may run twice: it is retried after a lost answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, delete, select, update
from sqlalchemy.dialects.postgresql import insert

from txsaga.core.decision import Decision
from txsaga.core.retry import patiently
from txsaga.errors import OutcomeUnknown
from txsaga.flows.branch import BranchId
from txsaga.resources.reservations import Reservation, ReservationState
from txsaga.store import schema
from txsaga.store.connection import transaction

reservation = schema.reservation
PATIENCE = 5.0
"""Seconds to retry after a lost answer; recovery has more."""
OPEN = [ReservationState.OPEN, ReservationState.HELD]
WAITING = [ReservationState.HELD, ReservationState.CANCELLING]
SETTLED = {
    Decision.COMMIT: (ReservationState.HELD, ReservationState.CONFIRMED),
    Decision.ROLLBACK: (ReservationState.CANCELLING, ReservationState.CANCELLED),
}

Answer = TypeVar("Answer")


class Reservations:
    """Reservations of one namespace."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def begin(self, branch: BranchId, resource: str, arguments: Mapping[str, object]) -> bool:
        """Store the arguments of a try before it runs; False if the branch is known: tried before, or closed."""
        row = _row(branch, resource, ReservationState.OPEN, arguments)
        fresh = insert(reservation).values(**row).on_conflict_do_nothing().returning(reservation.c.gid)
        with transaction(self._engine) as connection:  # never retried: a try that may have run is not run again
            return connection.execute(fresh).scalar() is not None

    def hold(self, branch: BranchId) -> bool:
        """Record that the try is done; repeating this is no error. False if it is closed, or was never begun."""
        held = update(reservation).where(_is(branch), reservation.c.state.in_(OPEN))
        held = held.values(state=ReservationState.HELD, tried=True)
        return self._done(lambda connection: connection.execute(held).rowcount == 1)

    def find(self, branch: BranchId) -> Reservation | None:
        """Return the reservation of a branch."""
        with transaction(self._engine) as connection:
            return _found(connection, branch)

    def shut(self, branch: BranchId, resource: str) -> Reservation:
        """Close a reservation to later tries and yes votes, unless it is confirmed; return it as it is now.

        One that was never begun is cancelled at once, and stays so: a late try is refused.
        """
        fresh = insert(reservation).values(**_row(branch, resource, ReservationState.CANCELLED, {}))
        shut = update(reservation).where(_is(branch), reservation.c.state.in_(OPEN))

        def step(connection: Connection) -> Reservation:
            connection.execute(fresh.on_conflict_do_nothing())
            connection.execute(shut.values(state=ReservationState.CANCELLING))
            found = _found(connection, branch)
            assert found is not None
            return found

        return self._done(step)

    def settle(self, branch: BranchId, decision: Decision) -> None:
        """Record that a held one is confirmed, or a closed one is cancelled; repeating this is no error."""
        source, target = SETTLED[decision]
        settled = update(reservation).where(_is(branch), reservation.c.state == source).values(state=target)
        self._done(lambda connection: connection.execute(settled).close())

    def held(self, resource: str, store: str) -> Sequence[BranchId]:
        """Return, in order, what a resource holds, or still has to cancel, for the store with this uuid."""
        waiting = select(reservation.c.gid).where(reservation.c.resource == resource, reservation.c.state.in_(WAITING))
        with transaction(self._engine) as connection:
            found = [BranchId.parse(gid) for gid in connection.execute(waiting).scalars()]
        return sorted(branch for branch in found if branch.store == store)

    def drop(self, branch: BranchId) -> None:
        """Delete a reservation."""
        gone = delete(reservation).where(_is(branch))
        self._done(lambda connection: connection.execute(gone).close())

    def _done(self, step: Callable[[Connection], Answer]) -> Answer:
        def once() -> Answer:
            with transaction(self._engine) as connection:
                return step(connection)

        try:
            return once()
        except OutcomeUnknown:
            return patiently(once, PATIENCE)


def _is(branch: BranchId) -> ColumnElement[bool]:
    return reservation.c.gid == branch.gid


def _row(
    branch: BranchId, resource: str, state: ReservationState, arguments: Mapping[str, object]
) -> dict[str, object]:
    txid = int(branch.transaction.rpartition("-")[2], 16)
    return {"gid": branch.gid, "txid": txid, "resource": resource, "state": state, "arguments": dict(arguments)}


def _found(connection: Connection, branch: BranchId) -> Reservation | None:
    row = connection.execute(select(reservation).where(_is(branch))).one_or_none()
    return None if row is None else Reservation(ReservationState(row.state), row.tried, row.arguments)
