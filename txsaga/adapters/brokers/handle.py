"""
What a user works with in a broker under somebody else's decision: messages to send, messages to take.

Nothing of it is seen, and nothing that is consumed is gone, before the coordinator decides. What lies here and was not
stored yet is lost with the process, and so is the branch.
"""

from __future__ import annotations

from txsaga.adapters.brokers.lives import BranchLives
from txsaga.engine.consuming import Consumed, consume
from txsaga.engine.gathering import FLUSH, Gathering
from txsaga.engine.kernel import Kernel
from txsaga.engine.received import Received
from txsaga.errors import TransactionClosed, TransactionError
from txsaga.model.decision import Decision
from txsaga.model.layout import Batch
from txsaga.model.records import Life, Row


class BrokerWork(Gathering):
    """The work of one branch in a broker."""

    def __init__(self, kernel: Kernel, lives: BranchLives, life: Life) -> None:
        super().__init__(kernel)
        self._lives, self._life = lives, life
        self._closed = self._broken = self._used = False

    @property
    def txid(self) -> int:
        """The number that the branch has in this broker."""
        return self._life.txid

    @property
    def used(self) -> bool:
        """Tell whether it took or gave messages, or was to."""
        return self._used or self._outbox.overflowed

    def consume(self, consumed: Consumed | Received, batch: Batch | None = None) -> None:
        """Let the decision take a message of this broker off its group, or move a stream's cursor."""
        self._require_open("consume")
        consume(self, consumed, batch)

    def join_life(self) -> Life:
        """Return the branch's row, for what is bound to it."""
        self._require_open("consume")
        self._used = True
        return self._life

    def close(self) -> list[Row]:
        """Take nothing more; hand over what is not stored yet, unless something is missing."""
        self._closed = True
        self._broken = self._broken or self._outbox.overflowed
        return [] if self._broken else self._outbox.take()

    def tell(self, decision: Decision) -> None:
        """Call the listeners."""
        self._tell(decision)

    def _flush(self) -> None:
        self._used = True
        if self._outbox.bytes > FLUSH:
            try:
                self._lives.add(self._life, self._outbox.take_whole())
            except BaseException:
                self._broken = True  # what was sent before would be missing from the rest
                raise

    def require_whole(self) -> None:
        """Refuse to go on without messages that could not be stored."""
        if self._broken:
            raise TransactionError("messages of this branch could not be stored; the transaction can only roll back")

    def _require_open(self, what: str) -> None:
        self.require_whole()
        if self._closed:
            raise TransactionClosed(f"this branch was asked for its vote: it is too late to {what}")
