"""Messages in a topic of a broker, and what goes wrong around them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import uuid4

from txsaga import Broker
from txsaga.checkback.by_hand import ByHand
from txsaga.consume.dispatcher import Dispatcher
from txsaga.core.decision import Decision
from txsaga.core.identity import StoreId
from txsaga.errors import StoreUnavailable
from txsaga.flows.branch import BranchId, Vote
from txsaga.resources.broker import BrokerWork, StoreParticipant
from txsaga.store.store import Store
from txsaga.testing.checking import check_once

ITEMS = "items"
_readers = count()


class CutOnce:
    """Ledgers behind a line that breaks at the next call, and is back at the one after it."""

    def __init__(self, ledgers: Any) -> None:  # those of any store
        self._ledgers = ledgers
        self.cut = False

    def open(self) -> Any:  # whatever the store's gives
        """Open a block, or fail once."""
        if self.cut:
            self.cut = False
            raise StoreUnavailable("the line is cut")
        return self._ledgers.open()


@dataclass(slots=True)
class BrokerShelf:
    """One topic of a broker, beside the process whose lines can be cut."""

    broker: Broker
    working: Broker
    store: Any
    lines: CutOnce = field(init=False)

    def __post_init__(self) -> None:
        """Create the topic; put the cutter into the line of whoever works."""
        self.broker.create_topic(ITEMS, "transaction", queues=1)
        self.lines = CutOnce(self.store.ledgers)
        self.store.ledgers = self.lines

    def put(self, handle: object, item: int) -> None:
        assert isinstance(handle, BrokerWork)
        handle.send(ITEMS, str(item).encode())

    def items(self) -> set[int]:
        dispatcher = Dispatcher(self.broker.kernel)
        while dispatcher.run_once():
            pass
        stream = self.broker.stream(f"reader-{next(_readers)}", [ITEMS], member="anna")
        found = set[int]()
        while (batch := stream.poll()) is not None:
            found |= {int(message.body) for message in batch.messages()}
        stream.close()
        return found

    def spoil(self, handle: object) -> None:
        """Let the broker take its owner for dead."""
        assert isinstance(handle, BrokerWork)
        ByHand(self.broker.kernel).decide(
            handle.join_life().txid, Decision.ROLLBACK, who="somebody", why="it took too long"
        )

    def cut(self, handle: object) -> None:
        self.lines.cut = True

    def overrule(self, branch: BranchId, decision: Decision) -> None:
        ByHand(self.broker.kernel).decide(self.txid(branch), decision, who="anna", why="by force", force=True)

    def kept(self, branch: BranchId) -> bool:
        return any(guest.gid == branch.gid for guest in self.broker.kernel.store.work.guests())

    @contextmanager
    def foreign(self) -> Iterator[None]:
        participant = StoreParticipant(self.broker, name="shelf")
        branch = BranchId(StoreId(uuid4(), 1).transaction(3), 1)
        enlisted = participant.enlist(branch)
        self.put(enlisted.handle, 99)
        assert enlisted.prepare()() is Vote.PREPARED
        yield
        assert list(participant.prepared(branch.store)) == [branch]
        participant.finish(branch, Decision.ROLLBACK)

    def txid(self, branch: BranchId) -> int:
        """Return the number of a branch's life here."""
        name = f"coordinator-{branch.store}"
        group = self.broker.kernel.store.registry.group(name, transactional=True)
        with self.broker.kernel.store.ledgers.open() as ledger:
            life = ledger.latest(group.id, branch.gid)
        assert life is not None
        return life.txid


def check(broker: Broker) -> None:
    """Run one round of the broker's own check-back."""
    check_once(broker)


def store_of(broker: Broker) -> Store:
    """Return a broker's store, whose ledgers a test may put something before."""
    return broker.kernel.store
