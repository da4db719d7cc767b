"""
How a transaction and what it consumes meet: only the decision takes messages off, or moves cursors.

It holds no rules of either. Whoever binds nothing here acknowledges by itself, whatever becomes of the transaction.
A flow outlives the processes of its steps: what a step consumes is the flow's in the commit that says that the step is
done. If it were bound before, a step that died, or failed, would have taken off what nobody worked on (R4).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from txsaga.engine.received import Received
from txsaga.model.arguments import check_kind
from txsaga.model.decision import Decision
from txsaga.model.identity import StoreId
from txsaga.model.layout import Batch
from txsaga.model.records import Life
from txsaga.ports.ledger import Ledger


class Consuming(Protocol):
    """A transaction whose decision takes something off."""

    def join_life(self) -> Life:
        """Open the transaction's row (for what needs one, like consumed offsets) and return it."""

    def when_decided(self, listener: Callable[[Decision], None]) -> None:
        """Tell somebody the decision."""


class Portion(Protocol):
    """What a step has consumed, and what becomes of it with the step."""

    @property
    def store(self) -> StoreId:
        """Where it lies."""

    def bind(self, ledger: Ledger, life: Life) -> None:
        """Make it the transaction's, in the commit that says that the step is done."""

    def settle(self) -> None:
        """Note that it is the transaction's."""

    def go_back(self, error: BaseException) -> None:
        """Let it come again: the step is not done, for this reason. It never raises."""


@runtime_checkable
class Stepwise(Protocol):
    """A transaction that consumes in its steps."""

    def take(self, portion: Portion) -> None:
        """Keep what was consumed for the end of the step."""


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
