"""
Which event may follow which state: one table per lifecycle.

Moves are checked against these tables, and the diagrams in the docs are drawn from them. Statements in `.sql` files
list states by hand: a new state must be added there, and to the CHECK constraint by a migration.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Generic, TypeVar

from txsaga.errors import IllegalTransition

State = TypeVar("State", bound=StrEnum)
Event = TypeVar("Event", bound=StrEnum)


class Lifecycle(Generic[State, Event]):
    """A table of legal moves."""

    def __init__(self, moves: Mapping[tuple[State, Event], State]) -> None:
        self.moves = MappingProxyType(dict(moves))

    def after(self, state: State, event: Event) -> State:
        """Return the state that follows, or raise `IllegalTransition`."""
        try:
            return self.moves[state, event]
        except KeyError:
            raise IllegalTransition(f"{event.value} is not possible in state {state.value}") from None

    def sources(self, event: Event) -> tuple[State, ...]:
        """Return the states in which the event is legal: the WHERE clause of its statement."""
        return tuple(state for state, cause in self.moves if cause is event)

    def final(self) -> frozenset[State]:
        """Return the states that no event leaves."""
        return frozenset(self.moves.values()) - {state for state, _ in self.moves}


class TxState(StrEnum):
    """The state of a keyed or flow transaction."""

    ACTIVE = "active"  # its owner adds to it; others may only roll it back
    SEALED = "sealed"  # by its owner: nothing is added any more, and the evidence may commit it
    PREPARED = "prepared"  # every branch voted yes
    PARKED = "parked"  # out of checks: invisible, listed, settled by an operator; not a decision
    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"


class TxEvent(StrEnum):
    """What moves a transaction."""

    SEAL = "seal"
    PREPARE = "prepare"
    COMMIT = "commit"
    ROLL_BACK = "roll_back"
    PARK = "park"
    RESUME = "resume"


TRANSACTION: Lifecycle[TxState, TxEvent] = Lifecycle(
    {
        (TxState.ACTIVE, TxEvent.SEAL): TxState.SEALED,
        (TxState.ACTIVE, TxEvent.ROLL_BACK): TxState.ROLLED_BACK,
        (TxState.SEALED, TxEvent.PREPARE): TxState.PREPARED,
        (TxState.SEALED, TxEvent.COMMIT): TxState.COMMITTED,
        (TxState.SEALED, TxEvent.ROLL_BACK): TxState.ROLLED_BACK,
        (TxState.SEALED, TxEvent.PARK): TxState.PARKED,
        (TxState.PREPARED, TxEvent.COMMIT): TxState.COMMITTED,
        (TxState.PREPARED, TxEvent.ROLL_BACK): TxState.ROLLED_BACK,
        (TxState.PREPARED, TxEvent.PARK): TxState.PARKED,
        (TxState.PARKED, TxEvent.RESUME): TxState.SEALED,
        (TxState.PARKED, TxEvent.COMMIT): TxState.COMMITTED,
        (TxState.PARKED, TxEvent.ROLL_BACK): TxState.ROLLED_BACK,
    }
)


class MessageState(StrEnum):
    """The state of one message."""

    INITIALISED = "initialised"
    PENDING = "pending"  # a half message: durable, invisible, undecided
    ROLLED_BACK = "rolled_back"
    COMMITTED = "committed"  # deliverable
    CONSUMING = "consuming"
    CONSUMED = "consumed"
    DELETED = "deleted"  # by retention


class MessageEvent(StrEnum):
    """What moves a message."""

    STORE = "store"
    COMMIT = "commit"
    ROLL_BACK = "roll_back"
    DELIVER = "deliver"
    GIVE_BACK = "give_back"
    ACKNOWLEDGE = "acknowledge"
    EXPIRE = "expire"


MESSAGE: Lifecycle[MessageState, MessageEvent] = Lifecycle(
    {
        (MessageState.INITIALISED, MessageEvent.STORE): MessageState.PENDING,
        (MessageState.PENDING, MessageEvent.COMMIT): MessageState.COMMITTED,
        (MessageState.PENDING, MessageEvent.ROLL_BACK): MessageState.ROLLED_BACK,
        (MessageState.COMMITTED, MessageEvent.DELIVER): MessageState.CONSUMING,
        (MessageState.CONSUMING, MessageEvent.GIVE_BACK): MessageState.COMMITTED,
        (MessageState.CONSUMING, MessageEvent.ACKNOWLEDGE): MessageState.CONSUMED,
        (MessageState.CONSUMED, MessageEvent.EXPIRE): MessageState.DELETED,
        (MessageState.ROLLED_BACK, MessageEvent.EXPIRE): MessageState.DELETED,
    }
)
