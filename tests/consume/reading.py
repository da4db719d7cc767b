"""What a model knows of a consumer group on one queue: who claims it, what is bound, what was consumed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from txsaga.core.decision import Decision
from txsaga.core.records import ClaimedQueue, Intent
from txsaga.errors import TxSagaError
from txsaga.store.store import Store


class Bound(NamedTuple):
    """Offsets that wait for the decision of a transaction."""

    txid: int
    start: int
    end: int


@dataclass
class Reading:
    """One queue as a group reads it."""

    group: str
    qid: int
    member: str
    claim: ClaimedQueue | None
    cursor: int = 0
    bound: Bound | None = None
    consumed: list[bytes] = field(default_factory=list)

    @property
    def due(self) -> int:
        """The offset that is consumed next."""
        return self.cursor if self.bound is None else self.bound.end

    def intend(self, store: Store, claim: ClaimedQueue, txid: int, start: int, end: int) -> bool:
        """Bind offsets to a transaction; tell whether the store let it be."""
        try:
            intent = Intent(group=self.group, qid=self.qid, start=start, end=end, epoch=claim.epoch, txid=txid)
            with store.ledgers.open() as ledger:
                ledger.intend(intent, self.member)
        except TxSagaError:
            return False
        self.bound = Bound(txid, start if self.bound is None else self.bound.start, end)
        return True

    def may_bind(self, txid: int, start: int, end: int) -> bool:
        """Tell whether these offsets are the next ones, or the last ones again, and nobody else's."""
        if self.bound is not None and self.bound.txid != txid:
            return False
        again = self.bound is not None and self.bound.start <= start and end == self.bound.end
        return (start == self.due or again) and end > start

    def passed(self, offset: int, bodies: list[bytes]) -> None:
        """Note that the cursor moved; what it passed was consumed."""
        self.consumed += bodies[self.cursor : offset]
        self.cursor = offset

    def freed(self, txid: int) -> None:
        """Forget what a transaction had bound."""
        if self.bound is not None and self.bound.txid == txid:
            self.bound = None

    def decided(self, txid: int, decision: Decision, bodies: list[bytes]) -> None:
        """Let a decision move or free what its transaction had bound."""
        if self.bound is not None and self.bound.txid == txid and decision is Decision.COMMIT:
            assert self.bound.start == self.cursor
            self.passed(self.bound.end, bodies)
        self.freed(txid)
