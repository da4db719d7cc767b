"""
A message claimed by a consumer: to be acknowledged, put back, held for longer, or bound to a transaction.

    with message:                  leaving the block acknowledges
        …                          an exception puts it back, with the cause; it is logged and the loop goes on
        tx.consume(message)        from here on only that transaction's decision settles it

Errors that mean that its work is done count as success: the inbox knows the message, or a transaction with its id as
key is committed. A message neither acknowledged nor put back is redelivered when its claim expires. A member that is
too late gets `ClaimLost`: another member may have done the work, so the work must tolerate being done twice.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

from txsaga import errors
from txsaga.consume.burial import bury
from txsaga.consume.claim import LONGEST, Claim, Policy
from txsaga.consume.dead_letter import short_cause
from txsaga.core import facts
from txsaga.core.arguments import check_kind, list_of
from txsaga.core.batch_future import BatchFuture
from txsaga.core.decision import Decision
from txsaga.core.forking import this_process
from txsaga.core.identity import StoreId
from txsaga.core.kernel import Kernel
from txsaga.core.layout import Batch
from txsaga.core.message import Delivered
from txsaga.core.records import TxRecord
from txsaga.core.retry import patiently
from txsaga.messages.tx_records import TxRecords

if TYPE_CHECKING:
    from txsaga.messages.ledger_store import Ledger


logger = logging.getLogger("txsaga")

MESSAGES = "give a list of messages from receive()"


class ReplySend:
    """Acknowledgements in flight, until the loop that waits for them is over."""

    def __init__(self) -> None:
        self.calls: list[tuple[Delivery, BatchFuture[None]]] = []
        self.over = False


class Fate(Enum):
    """What has happened to a message."""

    HELD = auto()
    DONE = auto()
    PUT_BACK = auto()
    TAKEN = auto()
    """By a step of a flow that is still open."""
    BOUND = auto()


class Delivery:
    """One message of a claim."""

    __slots__ = ("_fate", "_run", "_sent", "_settlement", "delivered")

    def __init__(self, settlement: Settlement, run: Claim, delivered: Delivered) -> None:
        self._settlement, self._run, self.delivered = settlement, run, delivered
        self._fate = Fate.HELD
        self._sent: ReplySend | None = None

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._run.group

    @property
    def claim(self) -> Claim:
        """The store's claim on this message."""
        return self._run.only(self.delivered.offset)

    @property
    def attempts(self) -> int:
        """How often it was delivered, including this time."""
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
        """Its id, the same at each delivery."""
        return self.delivered.id

    def text(self) -> str:
        """Read the body as UTF-8 text."""
        return self.delivered.text()

    def json(self) -> object:
        """Read the body as JSON."""
        return self.delivered.json()

    def ack(self) -> None:
        """Remove it from the group; `ClaimLost` when that comes too late."""
        self._require_held()
        self._settlement.acknowledge(self.claim)
        self._fate = Fate.DONE

    def nack(self, cause: str = "", *, delay: timedelta | None = None) -> None:
        """Put it back for redelivery, after `delay` or as its group's policy sets it."""
        self._require_held()
        self._settlement.fail(self, cause or "put back by its consumer", delay)
        self._fate = Fate.PUT_BACK

    def give_back(self) -> None:
        """Put it back as if it had not been claimed: redelivered at once, and uncounted."""
        self._require_held()
        self._settlement.give_back(self.claim)
        self._fate = Fate.PUT_BACK

    def extend(self, by: timedelta | None = None) -> None:
        """Hold it for longer, from now on: for the consumer's invisible time, or for `by`."""
        if self._fate is not Fate.TAKEN:
            self._require_held()
        self._settlement.extend(self.claim, by)

    def bind(self, transaction: Consuming) -> None:
        """Bind it to a transaction (`tx.consume`)."""
        self._require_held()
        self._fate = self._settlement.bind(self, transaction)

    def __enter__(self) -> Self:
        self._require_held()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
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
        """Return whether an error means that the work of this very message is done."""
        if isinstance(error, errors.AlreadyDone):
            return (error.message, error.group) == (self.id, self.group)
        return isinstance(error, errors.AlreadyCommitted) and error.key == self.id

    def _send_ack(self) -> None:
        if self._sent is None or self._sent.over:
            self.ack()
        else:
            self._sent.calls.append((self, self._settlement.send_ack(self.claim)))
            self._fate = Fate.DONE

    def _failed(self, error: Exception) -> None:
        said = "work on message %s failed, delivery %d: %s"
        logger.warning(said, self.id, self.attempts, error, exc_info=error, extra=named(self))
        try:
            self.nack(f"{type(error).__name__}: {error}")
        except errors.TxSagaError as reason:
            said = "message %s could not be put back, it is redelivered when its claim expires: %s"
            logger.warning(said, self.id, reason, extra=named(self))

    def _let_go(self) -> None:
        if self._fate is Fate.HELD:
            with suppress(errors.TxSagaError):  # redelivered when its claim expires; the first error must come out
                self._settlement.give_back(self.claim)
            self._fate = Fate.PUT_BACK

    def _require_held(self) -> None:
        if self._fate is not Fate.HELD:
            raise errors.TransactionError(f"message {self.id} is {self._fate.name.lower().replace('_', ' ')} already")


def named(message: Delivery) -> dict[str, str]:
    """Return the log fields that name a message."""
    return {"group": message.group, "message_id": message.id}


def acknowledge(settlement: Settlement, messages: Sequence[Delivery]) -> None:
    """Acknowledge many messages at once; `ClaimLost` when any of them came too late, the others are done."""
    messages = list_of(messages, "the messages", MESSAGES)
    for message in messages:
        check_kind(message, Delivery, "a message to be acknowledged", MESSAGES)
        message._require_held()
    calls = [(of_claim, settlement.send_ack(claim)) for claim, of_claim in by_claim(messages)]
    lost: list[errors.TxSagaError] = []
    for of_claim, call in calls:
        try:
            call.result()
        except (errors.ClaimLost, errors.StoreError) as reason:
            lost.append(reason)
        else:
            for message in of_claim:
                message._fate = Fate.DONE
    if lost:
        raise lost[0]


def by_claim(messages: Iterable[Delivery]) -> list[tuple[Claim, list[Delivery]]]:
    """Group messages that were claimed together, with the claim on all of them."""
    found: dict[int, list[Delivery]] = {}
    for message in messages:
        found.setdefault(id(message._run), []).append(message)
    return [(of[0]._run.only(*[message.delivered.offset for message in of]), of) for of in found.values()]


class Consuming(Protocol):
    """A transaction whose decision consumes something."""

    def join_life(self) -> TxRecord:
        """Open the transaction's row (for what needs one, like consumed offsets) and return it."""

    def when_decided(self, listener: Callable[[Decision], None]) -> None:
        """Call a listener with the decision."""


@runtime_checkable
class Stepwise(Protocol):
    """A transaction that consumes in its steps."""

    def take(self, portion: PendingConsumption) -> None:
        """Keep what was consumed until the end of the step."""


@runtime_checkable
class Consumed(Protocol):
    """A stream whose cursors can be bound to a transaction."""

    def bind(self, transaction: Consuming, batch: Batch) -> None:
        """Bind the cursor after a chunk."""


def consume(transaction: Consuming, consumed: Consumed | Delivery, batch: Batch | None) -> None:
    """Bind a received message, or a chunk of a stream."""
    if isinstance(consumed, Delivery):
        consumed.bind(transaction)
    else:
        advice = "give one that broker.stream opened, or a message that a consumer received"
        check_kind(consumed, Consumed, "the stream", advice)
        consumed.bind(transaction, batch)  # type: ignore[arg-type]  # it checks its chunk itself


class PendingMessage:
    """One message consumed by an open step."""

    def __init__(self, settlement: Settlement, message: Delivery, store: StoreId, rest: timedelta) -> None:
        self._settlement, self.message, self.store = settlement, message, store
        self.rest = rest  # the delay before a redelivery

    def settle(self) -> None:
        """Mark it as bound to the transaction."""
        self.message._fate = Fate.BOUND

    def go_back(self, error: BaseException) -> None:
        """Put it back, counted and with the reason; uncounted when its process is being terminated. It never raises."""
        message = self.message
        message._fate = Fate.PUT_BACK
        try:
            if isinstance(error, Exception):
                self._settlement.fail(message, f"its step failed: {type(error).__name__}: {error}", None)
            else:
                self._settlement.give_back(message.claim)
        except errors.TxSagaError as reason:
            logger.warning(
                "message %s could not be put back, it is redelivered when its claim expires: %s", message.id, reason
            )


class PendingChunk:
    """One chunk of a stream, consumed by an open step; the stream knows how to bind, follow and re-read it."""

    def __init__(
        self,
        store: StoreId,
        bind: Callable[[Ledger, TxRecord], None],
        settle: Callable[[], None],
        go_back: Callable[[], None],
    ) -> None:
        self.store, self.bind, self.settle, self._go_back = store, bind, settle, go_back

    def go_back(self, error: BaseException) -> None:
        """Read it again, under any error."""
        self._go_back()


PendingConsumption = PendingMessage | PendingChunk
"""What a step has consumed: bound or put back together with it."""


def bind_all(portions: Iterable[PendingConsumption], ledger: Ledger, life: TxRecord) -> None:
    """Bind all of it to the transaction, in the commit that marks the step as done.

    Messages claimed together are bound together, with the same delay.
    """
    rests: dict[str, timedelta] = {}
    messages: list[Delivery] = []
    for portion in portions:
        if isinstance(portion, PendingMessage):
            rests.setdefault(portion.message.id, portion.rest)
            messages.append(portion.message)
        else:
            portion.bind(ledger, life)
    for claim, together in by_claim(messages):
        ledger.bind(life.txid, claim, rests[together[0].id])


class Settlement:
    """Settles messages for one member."""

    def __init__(self, kernel: Kernel, invisible: timedelta, policy: Callable[[], Policy]) -> None:
        self._kernel, self._claims = kernel, kernel.store.claims
        self._invisible, self._policy = invisible, policy
        self._process = this_process()

    @property
    def ours(self) -> bool:
        """Whether this belongs to this process: a forked child has the messages, but no right to them."""
        return self._process == this_process()

    def require_ours(self) -> None:
        """Refuse to act in a forked child: its parent holds the same messages."""
        if not self.ours:
            raise errors.ClaimLost(
                "a forked child has nothing of its parent's consumer; open another with broker.consumer"
            )

    def acknowledge(self, claim: Claim) -> None:
        """Remove its open messages from the group."""
        self.require_ours()
        self._kernel.acks.call(claim)

    def send_ack(self, claim: Claim) -> BatchFuture[None]:
        """Acknowledge without waiting for the answer."""
        self.require_ours()
        return self._kernel.acks.submit(claim)

    def extend(self, claim: Claim, by: timedelta | None) -> None:
        """Hold a claim for longer."""
        self.require_ours()
        span = self._invisible if by is None else _span(by)
        with self._kernel.announce.around(facts.Extending, about=claim.group):
            self._claims.extend(claim, span)

    def fail(self, message: Delivery, cause: str, delay: timedelta | None) -> None:
        """Put a message back, or bury it when its attempts are used up."""
        self.require_ours()
        check_kind(cause, str, "cause", "give a text")
        policy, claim, cause = self._policy(), message.claim, short_cause(cause)
        if policy.exhausted(claim.attempts):
            bury(self._kernel, policy, claim, message.delivered, cause)
            return
        rest = policy.retry_in(claim.attempts, self._kernel.jitter()) if delay is None else _span(delay)
        with self._kernel.announce.around(facts.Returning, about=claim.group):
            self._claims.put_back(claim, rest, cause)

    def give_back(self, claim: Claim) -> None:
        """Put its open messages back, uncounted."""
        if not self.ours:
            return
        with self._kernel.announce.around(facts.Surrendering, about=claim.group):
            patiently(lambda: self._claims.give_back(claim))

    def bind(self, message: Delivery, transaction: Consuming) -> Fate:
        """Bind a message to a transaction, or to its open step; return which."""
        self.require_ours()
        claim = message.claim
        rest = self._policy().retry_in(claim.attempts, self._kernel.jitter())
        if isinstance(transaction, Stepwise):
            transaction.take(PendingMessage(self, message, self._kernel.store.registry.identity, rest))
            return Fate.TAKEN
        life = transaction.join_life()
        with (
            self._kernel.announce.around(facts.Binding, life.txid, about=claim.group),
            self._kernel.store.ledgers.open() as ledger,
        ):
            TxRecords(self._kernel).hold(ledger, life)
            ledger.bind(life.txid, claim, rest)
        return Fate.BOUND


def _span(given: timedelta) -> timedelta:
    if not isinstance(given, timedelta) or not timedelta() <= given <= LONGEST:
        raise errors.ConfigError(f"{given!r} is not a valid time; give a timedelta of at most {LONGEST.days} day")
    return given


LONGEST_ANSWER = 120.0
"""Seconds: an unavailable store is waited for half a minute, twice."""


class DeliveryLoop:
    """The messages that a loop has claimed and not yielded yet."""

    def __init__(self, settlement: Settlement, invisible: float) -> None:
        self._settlement, self._pause = settlement, invisible / 2
        self._waiting: deque[Delivery] = deque()

    def out(self, messages: Sequence[Delivery], closed: Callable[[], bool]) -> Iterator[Delivery]:
        """Yield messages until there are none, or the consumer is closed; log late acknowledgements."""
        self._waiting.extend(messages)
        sent, renew_at = ReplySend(), time.monotonic() + self._pause
        try:
            while self._waiting and not closed():
                if time.monotonic() > renew_at:
                    self._hold_longer()
                    renew_at = time.monotonic() + self._pause
                if self._waiting:
                    message = self._waiting.popleft()
                    message._sent = sent  # leaving its block sends the acknowledgement, and this loop waits for it
                    yield message
        finally:
            sent.over = True
            if self._settlement.ours and not sys.is_finalizing():  # at interpreter shutdown no thread is left to answer
                _wait_for(sent)
                self.give_back()

    def give_back(self) -> None:
        """Put back the messages that were not worked on, uncounted."""
        rest = []
        while self._waiting:
            rest.append(self._waiting.popleft())
        for claim, _ in by_claim(rest):
            try:
                self._settlement.give_back(claim)
            except errors.TxSagaError as reason:
                said = "messages of group %s are redelivered when their claim expires: %s"
                logger.warning(said, claim.group, reason, extra={"group": claim.group})

    def _hold_longer(self) -> None:
        """Extend the claims of the waiting messages; drop lost ones, which are redelivered."""
        for _, messages in by_claim(list(self._waiting)):  # closing the consumer empties it
            try:
                messages[0].extend()
            except errors.StoreError as away:
                told = named(messages[0])
                logger.warning("a claim of group %s could not be extended: %s", told["group"], away, extra=told)
            except errors.ClaimLost as lost:
                logger.warning("%s", lost, extra=named(messages[0]))
                self._waiting = deque(message for message in list(self._waiting) if message not in messages)


def _wait_for(sent: ReplySend) -> None:
    for message, call in sent.calls:
        try:
            call.result(LONGEST_ANSWER)
        except (errors.TxSagaError, TimeoutError) as reason:
            logger.warning("message %s is redelivered: %s", message.id, reason, extra=named(message))
