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
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from enum import Enum, auto
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

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
from txsaga.errors import (
    AlreadyCommitted,
    AlreadyDone,
    ClaimLost,
    ConfigError,
    StoreError,
    TransactionError,
    TxSagaError,
)
from txsaga.messages.ports import Ledger
from txsaga.messages.tx_records import TxRecords

logger = logging.getLogger("txsaga")

MESSAGES = "give a list of what receive() gave"


class ReplySend:
    """Acknowledgements under way, until the loop that waits for them is over."""

    def __init__(self) -> None:
        self.calls: list[tuple[Delivery, BatchFuture[None]]] = []
        self.over = False


class Fate(Enum):
    """What became of a message."""

    HELD = auto()
    DONE = auto()
    PUT_BACK = auto()
    TAKEN = auto()
    """By a step of a flow that is still open."""
    BOUND = auto()


class Delivery:
    """One message of a claim."""

    __slots__ = ("_fate", "_hands", "_run", "_sent", "delivered")

    def __init__(self, hands: Settlement, run: Claim, delivered: Delivered) -> None:
        self._hands, self._run, self.delivered = hands, run, delivered
        self._fate = Fate.HELD
        self._sent: ReplySend | None = None

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


def now_is(message: Delivery, fate: Fate) -> None:
    """Note what became of a message behind its back."""
    message._fate = fate


def named(message: Delivery) -> dict[str, str]:
    """Say what a line of a log is about."""
    return {"group": message.group, "message_id": message.id}


def handed_out(message: Delivery, sent: ReplySend) -> Delivery:
    """Leave it to a loop to wait for the acknowledgement that leaving the message's block sends off."""
    message._sent = sent
    return message


def acknowledge(hands: Settlement, messages: Sequence[Delivery]) -> None:
    """Acknowledge many messages at once; `ClaimLost` when any of them came too late, the others are done."""
    messages = list_of(messages, "the messages", MESSAGES)
    for message in messages:
        check_kind(message, Delivery, "a message to be acknowledged", MESSAGES)
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


def by_claim(messages: Iterable[Delivery]) -> list[tuple[Claim, list[Delivery]]]:
    """Put messages together that were taken together, with the claim on all of them."""
    found: dict[int, list[Delivery]] = {}
    for message in messages:
        found.setdefault(id(message._run), []).append(message)
    return [(of[0]._run.only(*[message.delivered.offset for message in of]), of) for of in found.values()]


class Consuming(Protocol):
    """A transaction whose decision takes something off."""

    def join_life(self) -> TxRecord:
        """Open the transaction's row (for what needs one, like consumed offsets) and return it."""

    def when_decided(self, listener: Callable[[Decision], None]) -> None:
        """Tell somebody the decision."""


class PendingConsumption(Protocol):
    """What a step has consumed, and what becomes of it with the step."""

    @property
    def store(self) -> StoreId:
        """Where it lies."""

    def bind(self, ledger: Ledger, life: TxRecord) -> None:
        """Make it the transaction's, in the commit that says that the step is done."""

    def settle(self) -> None:
        """Note that it is the transaction's."""

    def go_back(self, error: BaseException) -> None:
        """Let it come again: the step is not done, for this reason. It never raises."""


@runtime_checkable
class Stepwise(Protocol):
    """A transaction that consumes in its steps."""

    def take(self, portion: PendingConsumption) -> None:
        """Keep what was consumed for the end of the step."""


@runtime_checkable
class Consumed(Protocol):
    """A stream whose cursors can be bound to a transaction."""

    def bind(self, transaction: Consuming, batch: Batch) -> None:
        """Bind the cursor behind a chunk."""


def consume(transaction: Consuming, consumed: Consumed | Delivery, batch: Batch | None) -> None:
    """Bind a received message, or a chunk of a stream."""
    if isinstance(consumed, Delivery):
        consumed.bind(transaction)
    else:
        advice = "give one that broker.stream opened, or a message that a consumer received"
        check_kind(consumed, Consumed, "the stream", advice)
        consumed.bind(transaction, batch)  # type: ignore[arg-type]  # it looks at its chunk itself


class PendingMessage:
    """One message in the hands of a step."""

    def __init__(self, hands: Settlement, message: Delivery, store: StoreId, rest: timedelta) -> None:
        self._hands, self._message, self._rest = hands, message, rest
        self.store = store

    @property
    def taken(self) -> tuple[Delivery, timedelta]:
        """The message, and how long it rests before it comes again."""
        return self._message, self._rest

    def bind(self, ledger: Ledger, life: TxRecord) -> None:
        """Make it the transaction's, in the commit that says that the step is done."""
        ledger.bind(life.txid, self._message.claim, self._rest)

    def settle(self) -> None:
        """Note that it is the transaction's."""
        now_is(self._message, Fate.BOUND)

    def go_back(self, error: BaseException) -> None:
        """Let it come again, counted and with the reason; uncounted where its process is being ended."""
        message = self._message
        now_is(message, Fate.PUT_BACK)
        try:
            if isinstance(error, Exception):
                self._hands.fail(message, f"its step failed: {type(error).__name__}: {error}", None)
            else:
                self._hands.give_back(message.claim)
        except TxSagaError as reason:
            logger.warning(
                "message %s could not be put back, it comes again when its time is over: %s", message.id, reason
            )


def bind_all(portions: Iterable[PendingConsumption], ledger: Ledger, life: TxRecord) -> None:
    """Make all of it the transaction's: messages that were taken together are bound together, and rest as long."""
    rests: dict[str, timedelta] = {}
    messages: list[Delivery] = []
    for portion in portions:
        if isinstance(portion, PendingMessage):
            message, rest = portion.taken
            rests.setdefault(message.id, rest)
            messages.append(message)
        else:
            portion.bind(ledger, life)
    for claim, together in by_claim(messages):
        ledger.bind(life.txid, claim, rests[together[0].id])


class PendingChunk:
    """One chunk of a stream in the hands of a step; the stream says how it is bound, followed, and read again."""

    def __init__(
        self,
        store: StoreId,
        bind: Callable[[Ledger, TxRecord], None],
        settle: Callable[[], None],
        go_back: Callable[[], None],
    ) -> None:
        self.store, self.bind, self.settle, self._go_back = store, bind, settle, go_back

    def go_back(self, error: BaseException) -> None:
        """Read it again, whatever happened to the step."""
        self._go_back()


class Settlement:
    """One member's way to put messages where they belong."""

    def __init__(
        self, kernel: Kernel, invisible: timedelta, policy: Callable[[], Policy], jitter: Callable[[], float]
    ) -> None:
        self._kernel, self._claims = kernel, kernel.store.claims
        self._invisible, self._policy, self._jitter = invisible, policy, jitter
        self._process = this_process()

    @property
    def ours(self) -> bool:
        """Whether these are the hands of this process: a forked child has the messages, and no right to them."""
        return self._process == this_process()

    def require_ours(self) -> None:
        """Refuse to act for the parent, which holds the same messages."""
        if not self.ours:
            raise ClaimLost("a forked child has nothing of its parent's consumer; open another with broker.consumer")

    def acknowledge(self, claim: Claim) -> None:
        """Take its open messages off the group."""
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
        rest = policy.retry_in(claim.attempts, self._jitter()) if delay is None else _span(delay)
        with self._kernel.announce.around(facts.Returning, about=claim.group):
            self._claims.put_back(claim, rest, cause)

    def give_back(self, claim: Claim) -> None:
        """Let its open messages come again, uncounted."""
        if not self.ours:
            return
        with self._kernel.announce.around(facts.Surrendering, about=claim.group):
            patiently(lambda: self._claims.give_back(claim))

    def bind(self, message: Delivery, transaction: Consuming) -> Fate:
        """Make a message a transaction's, or that of the step which is open; tell which."""
        self.require_ours()
        claim = message.claim
        rest = self._policy().retry_in(claim.attempts, self._jitter())
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
        raise ConfigError(f"{given!r} is no time for a message; give a timedelta of at most {LONGEST.days} day")
    return given


LONGEST_ANSWER = 120.0
"""Seconds: a store that is away is waited for half a minute, twice."""


class DeliveryLoop:
    """The messages that a loop has taken and not handed out yet."""

    def __init__(self, hands: Settlement, invisible: float) -> None:
        self._hands, self._pause = hands, invisible / 2
        self._waiting: deque[Delivery] = deque()

    def out(self, messages: Sequence[Delivery], closed: Callable[[], bool]) -> Iterator[Delivery]:
        """Hand messages out until there are none, or the consumer is closed; what was too late is logged."""
        self._waiting.extend(messages)
        sent, renew_at = ReplySend(), time.monotonic() + self._pause
        try:
            while self._waiting and not closed():
                if time.monotonic() > renew_at:
                    self._hold_longer()
                    renew_at = time.monotonic() + self._pause
                if self._waiting:
                    yield handed_out(self._waiting.popleft(), sent)
        finally:
            sent.over = True
            if self._hands.ours and not sys.is_finalizing():  # at the end of a program nobody is left to answer
                _wait_for(sent)
                self.give_back()

    def give_back(self) -> None:
        """Let what nobody has worked on come again, uncounted."""
        rest = []
        while self._waiting:
            rest.append(self._waiting.popleft())
        for claim, _ in by_claim(rest):
            try:
                self._hands.give_back(claim)
            except TxSagaError as reason:
                said = "messages of group %s come again when their time is over: %s"
                logger.warning(said, claim.group, reason, extra={"group": claim.group})

    def _hold_longer(self) -> None:
        """Extend the claims of what waits; what is lost is dropped, since it comes again."""
        for _, messages in by_claim(list(self._waiting)):  # whoever closes the consumer takes them out
            try:
                messages[0].extend()
            except StoreError as away:
                told = named(messages[0])
                logger.warning("a claim of group %s could not be held longer: %s", told["group"], away, extra=told)
            except ClaimLost as lost:
                logger.warning("%s", lost, extra=named(messages[0]))
                self._waiting = deque(message for message in list(self._waiting) if message not in messages)


def _wait_for(sent: ReplySend) -> None:
    for message, call in sent.calls:
        try:
            call.result(LONGEST_ANSWER)
        except (TxSagaError, TimeoutError) as reason:
            logger.warning("message %s comes again: %s", message.id, reason, extra=named(message))
