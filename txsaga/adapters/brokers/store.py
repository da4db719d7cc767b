"""
Another store of ours as a participant: half messages durable are its yes, an op row is its commit.

Its own check-back rolls back only what has not voted. A branch that voted yes is decided by nobody here but the store
that coordinates it, or by a person's force, which that store is told of (R15).
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from txsaga.adapters.brokers.lives import BranchLives
from txsaga.adapters.brokers.store_branch import StoreBranch
from txsaga.engine.broker import Broker
from txsaga.errors import ConfigError, StoreUnavailable, TransactionsRejected, UnknownTransaction
from txsaga.model.branch import BranchId, Finish
from txsaga.model.capabilities import Capabilities, Kind, capabilities_of
from txsaga.model.decision import Decision
from txsaga.model.lifecycle import TxState
from txsaga.model.rights import Right
from txsaga.ports.branches import Guest
from txsaga.ports.participants import Ages, Over

PAGE = 1_000


class StoreParticipant:
    """One broker that takes part in the transactions of others."""

    def __init__(self, broker: Broker, *, name: str) -> None:
        self.name, self.broker = name, broker
        self._lives = BranchLives(broker.kernel)

    @property
    def capabilities(self) -> Capabilities:
        """What a broker can do."""
        return capabilities_of(Kind.BROKER)

    @property
    def database(self) -> UUID:
        """The uuid of the store."""
        return self.broker.identity.uuid

    def probe(self) -> None:
        """Refuse a login that may not write transactions there, and a store that takes none; nothing is written."""
        store = self.broker.kernel.store
        if Right.PRODUCER not in store.rights:
            raise ConfigError(f"broker {self.name!r} can't vote: this login has no producer right there; grant it")
        if store.registry.rejects_transactions:
            raise TransactionsRejected(f"{self.broker.identity} (broker {self.name!r})")

    def enlist(self, branch: BranchId) -> StoreBranch:
        """Open the life of a branch; a broker is no participant of what it coordinates itself."""
        if branch.store == self.database.hex:
            raise ConfigError(
                f"broker {self.name!r} coordinates transaction {branch.transaction}, so it can't vote on it; "
                "send with the transaction itself"
            )
        if self.broker.kernel.closed:
            raise StoreUnavailable(f"broker {self.name!r} is closed here")
        return StoreBranch(self.broker.kernel, self._lives, branch, self._lives.open(branch))

    def finish(self, branch: BranchId, decision: Decision) -> Finish:
        """Do what was decided, from any process."""
        return self._lives.tell(branch, decision)

    def fence(self, branch: BranchId) -> Finish:
        """A broker never commits in one phase: whatever was begun there is rolled back."""
        return self.finish(branch, Decision.ROLLBACK)

    def prepared(self, store: str) -> Sequence[BranchId]:
        """Return every branch that voted yes for a store."""
        return [branch for branch, guest in self.guests(UUID(hex=store)) if guest.state is TxState.PREPARED]

    def guests(self, coordinator: UUID | None = None) -> list[tuple[BranchId, Guest]]:
        """Return what voted yes here for a store, or for any, and what was decided by force."""
        found: list[tuple[BranchId, Guest]] = []
        after = 0
        while page := self.broker.kernel.store.branches.guests(coordinator, after=after, limit=PAGE):
            after = page[-1].txid
            found += [(branch, guest) for guest in page for branch in _named(guest)]
        return found

    def forget(self, branch: BranchId) -> None:
        """Drop the mark of what was decided by force."""
        self._lives.forget(branch)

    def sweep(self, store: str, ages: Ages, over: Over) -> int:
        """Do nothing: a broker drops what is over with its partitions."""
        return 0

    def close(self) -> None:
        """Close the broker here."""
        self.broker.close()


def _named(guest: Guest) -> list[BranchId]:
    try:
        return [BranchId.parse(guest.gid)]
    except UnknownTransaction:
        return []
