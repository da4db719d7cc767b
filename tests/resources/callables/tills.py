"""A till whose money is reserved, then taken or given back: the functions, and the shelf of its items."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import uuid4

from txsaga.core.decision import Decision
from txsaga.flows.branch import BranchId
from txsaga.resources.tcc import Callables, TccParticipant, TccWork
from txsaga.store.store import Store
from txsaga.testing.participant_contract import new_branch


@dataclass(slots=True)
class Till:
    """What is reserved and what is taken, by the id of a branch; each is done once only."""

    reserved: dict[str, int] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    cancelled: list[str] = field(default_factory=list)
    refuses: bool = False
    broken: int = 0  # so many calls of the second phase fail

    def reserve(self, id: str, *, item: int) -> int:
        if self.refuses:
            raise ValueError("no money")
        self.reserved[id] = item
        return item

    def confirm(self, id: str, *, item: int) -> None:
        self._fail()
        if id not in self.taken:
            assert self.reserved.pop(id) == item
            self.taken[id] = item

    def cancel(self, id: str, *, item: int) -> None:
        self._fail()
        self.reserved.pop(id, None)
        self.cancelled.append(id)

    def _fail(self) -> None:
        if self.broken:
            self.broken -= 1
            raise OSError("the till is closed")

    @property
    def callables(self) -> Callables:
        return Callables(try_=self.reserve, confirm=self.confirm, cancel=self.cancel)


class ReservedShelf:
    """What a shelf of items needs whose participant keeps reservations in the home store."""

    def __init__(self, participant: TccParticipant, store: Store) -> None:
        self._participant, self._store = participant, store

    def cut(self, handle: object) -> None:
        """Do nothing: there is no session."""

    def overrule(self, branch: BranchId, decision: Decision) -> None:
        """Decide a held branch by hand."""
        self._participant.finish(branch, decision)

    def kept(self, branch: BranchId) -> bool:
        """Tell whether its reservation is kept."""
        return self._store.reservations.find(branch) is not None

    @contextmanager
    def foreign(self) -> Iterator[None]:
        """Hold a reservation of another participant."""
        theirs, name = new_branch(), uuid4().hex
        self._store.reservations.begin(theirs, name, {})
        self._store.reservations.hold(theirs)
        yield
        assert list(self._store.reservations.held(name, theirs.store)) == [theirs]


class TillShelf(ReservedShelf):
    """Items that are taken."""

    def __init__(self, till: Till, participant: TccParticipant, store: Store) -> None:
        super().__init__(participant, store)
        self._till = till

    def put(self, handle: object, item: int) -> None:
        """Reserve an item."""
        assert isinstance(handle, TccWork)
        assert handle(item=item) == item

    def items(self) -> set[int]:
        """Return the items that are taken."""
        return set(self._till.taken.values())

    def spoil(self, handle: object) -> None:
        """Cancel a branch behind its back."""
        assert isinstance(handle, TccWork)
        self._participant.finish(BranchId.parse(handle.id), Decision.ROLLBACK)
