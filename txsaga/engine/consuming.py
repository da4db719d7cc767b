"""
How a transaction and what it consumes meet: only the decision takes messages off, or moves cursors.

It holds no rules of either. Whoever binds nothing here acknowledges by itself, whatever becomes of the transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from txsaga.engine.received import Received
from txsaga.model.arguments import check_kind
from txsaga.model.decision import Decision
from txsaga.model.layout import Batch
from txsaga.model.records import Life


class Consuming(Protocol):
    """A transaction whose decision takes something off."""

    def join_life(self) -> Life:
        """Open the transaction's row (for what needs one, like consumed offsets) and return it."""

    def when_decided(self, listener: Callable[[Decision], None]) -> None:
        """Tell somebody the decision."""


@runtime_checkable
class Consumed(Protocol):
    """A stream whose cursors can be bound to a transaction."""

    def bind(self, transaction: Consuming, batch: Batch) -> None:
        """Bind the cursor behind a chunk."""


def consume(transaction: Consuming, consumed: Consumed | Received, batch: Batch | None) -> None:
    """Bind a received message, or a chunk of a stream."""
    if isinstance(consumed, Received):
        consumed.bind(transaction)
    else:
        advice = "give one that broker.stream opened, or a message that a consumer received"
        check_kind(consumed, Consumed, "the stream", advice)
        consumed.bind(transaction, batch)  # type: ignore[arg-type]  # it looks at its chunk itself
