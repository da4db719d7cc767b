"""
A message in the hands of a consumer: to be acknowledged, put back, held for longer, or given to a transaction.

    with message:                  leaving the block acknowledges
        …                          an exception puts it back, with the cause; it is logged and the loop goes on
        tx.consume(message)        from here on only that transaction's decision says what becomes of it

Errors that say that its work is done count as success: the inbox knows the message, or a transaction that had its id
as key is committed. What is neither acknowledged nor put back comes again when the claim's time is over. A member
that comes too late is told so (`ClaimLost`): somebody else may have done the work, so whatever it did must bear
being done twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from enum import Enum, auto
from types import TracebackType
from typing import TYPE_CHECKING, Self

from txsaga.engine.pending import Pending
from txsaga.errors import AlreadyCommitted, AlreadyDone, ClaimLost, StoreError, TransactionError, TxSagaError
from txsaga.model.arguments import check_kind, list_of
from txsaga.model.claim import Claim
from txsaga.model.message import Delivered

if TYPE_CHECKING:
    from txsaga.engine.consuming import Consuming
    from txsaga.engine.hands import Hands

logger = logging.getLogger("txsaga")

MESSAGES = "give a list of what receive() gave"


class Sent:
    """Acknowledgements under way, until the loop that waits for them is over."""

    def __init__(self) -> None:
        self.calls: list[tuple[Received, Pending[None]]] = []
        self.over = False


class Fate(Enum):
    """What became of a message."""

    HELD = auto()
    DONE = auto()
    PUT_BACK = auto()
    TAKEN = auto()
    """By a step of a flow that is still open."""
    BOUND = auto()


class Received:
    """One message of a claim."""

    __slots__ = ("_fate", "_hands", "_run", "_sent", "delivered")

    def __init__(self, hands: Hands, run: Claim, delivered: Delivered) -> None:
        self._hands, self._run, self.delivered = hands, run, delivered
        self._fate = Fate.HELD
        self._sent: Sent | None = None

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._run.group

    @property
    def claim(self) -> Claim:
        """What the store knows of it in these hands."""
        return self._run.only(self.delivered.offset)

    @property
    def attempts(self) -> int:
        """How often it was handed out, this time included."""
        return self._run.attempts

    @property
    def topic(self) -> str:
        """The topic it was sent to."""
        return self.delivered.topic

    @property
    def body(self) -> bytes:
        """Its content."""
        return self.delivered.body

    @property
    def key(self) -> str | None:
        """The key it was sent with."""
        return self.delivered.key

    @property
    def tag(self) -> str | None:
        """The tag it was sent with."""
        return self.delivered.tag

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers it was sent with."""
        return self.delivered.headers

    @property
    def id(self) -> str:
        """The id that is the same at each delivery."""
        return self.delivered.id

    def text(self) -> str:
        """Read the body as UTF-8 text."""
        return self.delivered.text()

    def json(self) -> object:
        """Read the body as JSON."""
        return self.delivered.json()

    def ack(self) -> None:
        """Take it off the group; `ClaimLost` when that comes too late."""
        self._require_held()
        self._hands.acknowledge(self.claim)
        self._fate = Fate.DONE

    def nack(self, cause: str = "", *, delay: timedelta | None = None) -> None:
        """Put it back; it comes again after `delay`, else as its group's policy says."""
        self._require_held()
        self._hands.fail(self, cause or "put back by its consumer", delay)
        self._fate = Fate.PUT_BACK

    def give_back(self) -> None:
        """Let it come again as if it had not been taken: at once, and uncounted."""
        self._require_held()
        self._hands.give_back(self.claim)
        self._fate = Fate.PUT_BACK

    def extend(self, by: timedelta | None = None) -> None:
        """Hold it for longer from now on: the consumer's invisible time, unless another one is given."""
        if self._fate is not Fate.TAKEN:
            self._require_held()
        self._hands.extend(self.claim, by)

    def bind(self, transaction: Consuming) -> None:
        """Make it a transaction's (`tx.consume`)."""
        self._require_held()
        self._fate = self._hands.bind(self, transaction)

    def __enter__(self) -> Self:
        """Work on it."""
        self._require_held()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Acknowledge it, or put it back; what an exception says is logged, and the loop goes on."""
        if error is not None and not isinstance(error, Exception):
            self._let_go()
            return False
        if self._fate is not Fate.HELD:
            if error is not None:
                logger.warning("work on message %s raised: %s", self.id, error, exc_info=error, extra=named(self))
            return error is not None
        if error is None or self._says_done(error):
            self._send_ack()
        else:
            self._failed(error)
        return error is not None

    def _says_done(self, error: Exception) -> bool:
        """Tell whether an error says that the work of this very message is done."""
        if isinstance(error, AlreadyDone):
            return (error.message, error.group) == (self.id, self.group)
        return isinstance(error, AlreadyCommitted) and error.key == self.id

    def _send_ack(self) -> None:
        if self._sent is None or self._sent.over:
            self.ack()
        else:
            self._sent.calls.append((self, self._hands.send_ack(self.claim)))
            self._fate = Fate.DONE

    def _failed(self, error: Exception) -> None:
        said = "work on message %s failed, delivery %d: %s"
        logger.warning(said, self.id, self.attempts, error, exc_info=error, extra=named(self))
        try:
            self.nack(f"{type(error).__name__}: {error}")
        except TxSagaError as reason:
            said = "message %s could not be put back, it comes again when its time is over: %s"
            logger.warning(said, self.id, reason, extra=named(self))

    def _let_go(self) -> None:
        if self._fate is Fate.HELD:
            with suppress(TxSagaError):  # it comes again when its time is over; what ends the block must come out
                self._hands.give_back(self.claim)
            self._fate = Fate.PUT_BACK

    def _require_held(self) -> None:
        """Refuse what was settled already."""
        if self._fate is not Fate.HELD:
            raise TransactionError(f"message {self.id} is {self._fate.name.lower().replace('_', ' ')} already")


def now_is(message: Received, fate: Fate) -> None:
    """Note what became of a message behind its back."""
    message._fate = fate


def named(message: Received) -> dict[str, str]:
    """Say what a line of a log is about."""
    return {"group": message.group, "message_id": message.id}


def handed_out(message: Received, sent: Sent) -> Received:
    """Leave it to a loop to wait for the acknowledgement that leaving the message's block sends off."""
    message._sent = sent
    return message


def acknowledge(hands: Hands, messages: Sequence[Received]) -> None:
    """Acknowledge many messages at once; `ClaimLost` when any of them came too late, the others are done."""
    messages = list_of(messages, "the messages", MESSAGES)
    for message in messages:
        check_kind(message, Received, "a message to be acknowledged", MESSAGES)
        message._require_held()
    calls = [(of_claim, hands.send_ack(claim)) for claim, of_claim in by_claim(messages)]
    lost: list[TxSagaError] = []
    for of_claim, call in calls:
        try:
            call.result()
        except (ClaimLost, StoreError) as reason:
            lost.append(reason)
        else:
            for message in of_claim:
                message._fate = Fate.DONE
    if lost:
        raise lost[0]


def by_claim(messages: Iterable[Received]) -> list[tuple[Claim, list[Received]]]:
    """Put messages together that were taken together, with the claim on all of them."""
    found: dict[int, list[Received]] = {}
    for message in messages:
        found.setdefault(id(message._run), []).append(message)
    return [(of[0]._run.only(*[message.delivered.offset for message in of]), of) for of in found.values()]
