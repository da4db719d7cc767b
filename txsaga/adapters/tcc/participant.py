"""
A participant that reserves: its try is its vote, its confirm or cancel is its second phase.

What is confirmed or cancelled is read from the reservation, so that any process does it that knows the name. Both are
called until they answer, and again when their answer was lost: they must do nothing the second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID, uuid5

from txsaga.adapters.tcc.branch import TccBranch
from txsaga.adapters.tcc.calls import Calls
from txsaga.errors import ConfigError, xa
from txsaga.model.branch import BranchId, Finish
from txsaga.model.capabilities import Capabilities, Kind, capabilities_of
from txsaga.model.decision import Decision
from txsaga.model.reservation import ReservationState
from txsaga.model.rights import Right
from txsaga.ports.participants import Ages, Over
from txsaga.ports.store import Store


class TccParticipant:
    """One registered set of calls."""

    def __init__(self, calls: Calls, *, name: str, kind: Kind, place: str, store: Store) -> None:
        self.name, self._kind, self._calls, self._store = name, kind, calls, store
        self._place = place

    @property
    def capabilities(self) -> Capabilities:
        """What its kind can do."""
        return capabilities_of(self._kind)

    @property
    def database(self) -> UUID:
        """A uuid of store and place: it has none of its own."""
        return uuid5(self._store.registry.identity.uuid, f"{self._kind}:{self._place}")

    def probe(self) -> None:
        """Raise `ConfigError` unless its reservations can be written."""
        if Right.PRODUCER not in self._store.rights:
            raise ConfigError(f"participant {self.name!r} can't vote: this login has no producer right; grant it")

    def enlist(self, branch: BranchId) -> TccBranch:
        """Open a branch; nothing is called before the user does."""
        return TccBranch(self, self._calls, self._store.reservations, branch)

    def finish(self, branch: BranchId, decision: Decision) -> Finish:
        """Confirm or cancel, from any process; what is over by now is told by its reservation."""
        return self._confirmed(branch) if decision is Decision.COMMIT else self._cancelled(branch)

    def fence(self, branch: BranchId) -> Finish:
        """Cancel: nothing is confirmed in one phase."""
        return self.finish(branch, Decision.ROLLBACK)

    def prepared(self, store: str) -> Sequence[BranchId]:
        """Return every branch that is held, or still to be cancelled, for a store."""
        return self._store.reservations.held(self.name, store)

    def forget(self, branch: BranchId) -> None:
        """Drop the reservation."""
        self._store.reservations.drop(branch)

    def sweep(self, store: str, ages: Ages, over: Over) -> int:
        """Do nothing: a reservation goes with the partition of its transaction."""
        return 0

    def close(self) -> None:
        """Nothing was opened here."""

    def _confirmed(self, branch: BranchId) -> Finish:
        found = self._store.reservations.find(branch)
        match found.state if found else None:
            case ReservationState.CONFIRMED:
                return Finish.DONE
            case ReservationState.OPEN:
                raise xa.ProtocolError(f"branch {branch.gid} holds no yes that could be committed")
            case ReservationState.HELD:
                assert found is not None
                finish = self._calls.confirm(branch, found)
                if finish is Finish.DONE:
                    self._store.reservations.settle(branch, Decision.COMMIT)
                return finish
            case _:
                return Finish.ROLLED_BACK

    def _cancelled(self, branch: BranchId) -> Finish:
        found = self._store.reservations.shut(branch, self.name)
        match found.state:
            case ReservationState.CONFIRMED:
                return Finish.COMMITTED
            case ReservationState.CANCELLED:
                return Finish.DONE
            case _:
                finish = self._calls.cancel(branch, found)
                if finish is Finish.DONE:
                    self._store.reservations.settle(branch, Decision.ROLLBACK)
                return finish
