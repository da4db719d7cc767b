"""
What every kind of block has: messages that it collects for its decision, listeners of that decision, its stages.

The block refuses messages that come too early or too late, and stores them once
there are too many to keep in memory. If the process dies, unstored messages are lost, and the transaction with them.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from operator import add
from typing import Self, Unpack, overload
from weakref import ref

from txsaga import errors
from txsaga.consume.delivery import Consumed, Delivery, consume
from txsaga.core.arguments import check_function
from txsaga.core.chunk import MAX_BYTES, pieces
from txsaga.core.decision import Decision
from txsaga.core.failure import on_failure
from txsaga.core.forking import this_process
from txsaga.core.kernel import Kernel
from txsaga.core.layout import Batch, lay_out, lay_out_columns, lay_out_one, weight
from txsaga.core.message import Column, Message, SendOptions, as_message
from txsaga.core.records import Group, Row, TxRecord
from txsaga.core.topic import SendKind, Topic
from txsaga.core.validation import validate_columns
from txsaga.messages.stored_block import ENTER, BlockStage
from txsaga.messages.topics import Topics

MOST = 64 * 1024 * 1024
"""Maximum bytes stored in one step."""
INCOMPLETE = "a message was refused for which there was no room; the others are not committed without it"


class Outbox:
    """Messages of one transaction that are not stored yet."""

    def __init__(self, topics: Topics, way: SendKind) -> None:
        self._topics, self._way = topics, way
        self._loose: dict[int, list[Message]] = {}
        self._rows: list[Row] = []
        self._chunks: dict[int, int] = {}
        self.bytes = 0
        self.count = 0
        self.overflowed = False  # a message was refused for lack of room

    def add(self, message: Message) -> None:
        """Keep a message."""
        message, qid = self._topics.admit(message, self._way)
        self._grow(weight(message), 1)
        self._loose.setdefault(qid, []).append(message)

    def add_many(
        self,
        name: str,
        bodies: Sequence[bytes],
        *,
        keys: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
    ) -> None:
        """Keep many messages of one topic as columns, without one object per message."""
        topic = self._topics.admit_many(name, self._way)
        held = validate_columns(bodies, keys, tags)
        self._grow(held, len(bodies))
        self._pack()
        sizes = _sizes(bodies, keys, tags) if held > MAX_BYTES else [0] * len(bodies)
        for picked, qid in self._spread(topic, keys, sizes):
            body = lay_out_columns(
                [bodies[at] for at in picked],
                key=None if keys is None else [keys[at] for at in picked],
                tag=None if tags is None else [tags[at] for at in picked],
            )
            self._rows.append(Row(qid, self._next_chunk(qid), len(picked), body))

    def take(self) -> list[Row]:
        """Remove and return everything as rows."""
        self._pack()
        taken, self._rows = self._rows, []
        self.bytes = self.count = 0
        return taken

    def take_whole(self) -> list[Row]:
        """Remove and return everything of one transaction; `TransactionError` if a message was refused."""
        if self.overflowed:
            raise errors.TransactionError(INCOMPLETE)
        return self.take()

    def _grow(self, held: int, count: int) -> None:
        if self.bytes + held > MOST:
            self.overflowed = True
            raise errors.InvalidMessage(
                f"{self.bytes + held:,} bytes would be stored in one step, at most {MOST:,} are; "
                "send fewer at a time: in a block pass key=… to store as you send, in a flow send in several steps"
            )
        self.bytes += held
        self.count += count

    def _spread(
        self, topic: Topic, keys: Sequence[str] | None, sizes: Sequence[int]
    ) -> Iterator[tuple[Sequence[int], int]]:
        """Yield the records for each queue: by key, or in chunks round-robin."""
        if keys is None:
            yield from ((piece, topic.queue_for(None, self._topics.turn())) for piece in pieces(sizes))
            return
        by_queue: dict[int, list[int]] = {}
        for at, key in enumerate(keys):
            by_queue.setdefault(topic.queue_for(key, 0), []).append(at)
        for qid, places in sorted(by_queue.items()):
            for piece in pieces([sizes[at] for at in places]):
                yield places[piece.start : piece.stop], qid

    def _pack(self) -> None:
        for qid, messages in sorted(self._loose.items()):
            if len(messages) == 1:
                self._rows.append(Row(qid, self._next_chunk(qid), 1, lay_out_one(messages[0])))
                continue
            for piece in pieces([weight(message) for message in messages]):
                body = lay_out(messages[piece.start : piece.stop])
                self._rows.append(Row(qid, self._next_chunk(qid), len(piece), body))
        self._loose = {}

    def _next_chunk(self, qid: int) -> int:
        chunk = self._chunks.get(qid, 0)
        self._chunks[qid] = chunk + 1
        return chunk


def _sizes(bodies: Sequence[bytes], keys: Sequence[str] | None, tags: Sequence[str] | None) -> list[int]:
    sizes = list(map(len, bodies))
    for column in (keys, tags):
        if column is not None:
            sizes = list(map(add, sizes, (len(text.encode()) for text in column)))
    return sizes


logger = logging.getLogger("txsaga")

FLUSH = 8 * 1024 * 1024
"""Bytes in memory above which messages are stored before the decision."""


class MessageBuffer(ABC):
    """Collects messages and the listeners of the decision."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._outbox = Outbox(kernel.topics, SendKind.HALF)
        self._listeners: list[Callable[[Decision], None]] = []

    def send(self, topic: str | Message, body: bytes | None = None, **options: Unpack[SendOptions]) -> None:
        """Add a message: only COMMIT publishes it."""
        message = as_message(topic, body, options)
        self._require_open("send")
        self._outbox.add(message)
        self._flush()

    def send_many(self, topic: str, bodies: Sequence[bytes], *, keys: Column = None, tags: Column = None) -> None:
        """Add many messages of one topic as columns."""
        self._require_open("send")
        self._outbox.add_many(topic, bodies, keys=keys, tags=tags)
        self._flush()

    @overload
    def consume(self, consumed: Delivery) -> None: ...

    @overload
    def consume(self, consumed: Consumed, batch: Batch) -> None: ...

    def consume(self, consumed: Consumed | Delivery, batch: Batch | None = None) -> None:
        """Let the decision acknowledge a message for its group, or move a stream's cursor past a chunk."""
        self._require_open("consume")
        consume(self, consumed, batch)

    def when_decided(self, listener: Callable[[Decision], None]) -> None:
        """Call a listener with the decision."""
        check_function(listener, "listener", "give a function that takes the decision")
        self._listeners.append(listener)

    def _tell(self, decision: Decision) -> None:
        """Call each listener once; log an exception, since the decision is already made."""
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            try:
                listener(decision)
            except Exception:
                logger.exception("a listener of transaction %s failed", self.txid)

    @property
    @abstractmethod
    def txid(self) -> int | None:
        """The transaction's number, once it has one."""

    @abstractmethod
    def join_life(self) -> TxRecord:
        """Return the transaction's record, to bind something to it."""

    @abstractmethod
    def _require_open(self, what: str) -> None:
        """Raise unless messages are accepted; `what` names the request in the error."""

    @abstractmethod
    def _flush(self) -> None:
        """Store the messages if there are too many to keep in memory."""


_around: ContextVar[tuple[ref[DecidedBlock], ...]] = ContextVar("blocks with a key, around this code", default=())


class DecidedBlock(MessageBuffer):
    """A block of this process that is decided when it is left."""

    def __init__(self, kernel: Kernel, group: Group, key: str | None) -> None:
        super().__init__(kernel)
        self._group, self._key, self._stage = group, key, BlockStage.NEW
        self._process, self._inside = this_process(), False
        self._named = kernel, self._process, group.id, key
        self.decision: Decision | None = None

    def __repr__(self) -> str:
        stage = self._stage if self.decision is None else self.decision
        return f"<{type(self).__name__} {self.txid or 'not stored'}, {stage.name.lower()}>"

    @property
    def id(self) -> str | None:
        """The id that names store and transaction, once there is one."""
        return None if self.txid is None else self._kernel.store.registry.identity.transaction(self.txid)

    @abstractmethod
    def __enter__(self) -> Self:
        """Open it."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Decide; an exception of the block always propagates."""
        if self._process != this_process():
            if error is None:
                self._require_ours()
            return
        try:
            self._leave(error)
        except errors.TxSagaError as reason:
            self._come_out(reason, error)
        finally:
            self._inside = False
            self._release()
        if isinstance(error, errors.BrokerClosed) and self.txid is not None and self.decision is None:
            raise unknown(self.txid) from error

    @abstractmethod
    def _leave(self, error: BaseException | None) -> None:
        """Decide, after the exception of the block if there is one."""

    @abstractmethod
    def _release(self) -> None:
        """Let others ask about the transaction from here on."""

    @abstractmethod
    def _store(self, rows: Sequence[Row]) -> None:
        """Store messages ahead of the decision."""

    def _flush(self) -> None:
        if self._outbox.bytes > FLUSH:
            with on_failure(self._break):
                self._store(self._outbox.take_whole())

    def _break(self) -> None:
        self._stage = BlockStage.BROKEN

    def _require_new(self) -> None:
        """Raise unless the block can be entered; blocks inside will know it."""
        if self._stage is not BlockStage.NEW:
            raise errors.TransactionClosed(
                "a transaction block is used once; make another one with producer.transaction(…)"
            )
        self._kernel.require_open()
        if self._key is not None:
            known = filter(None, (each() for each in _around.get()))
            around = [block for block in known if block._inside and block._stage is not BlockStage.NEW]
            if self._named in [block._named for block in around]:  # it would take over what it is a part of
                text = "is open in a block around this one; use its transaction instead of opening another one"
                raise errors.TransactionError(f"key {self._key!r} {text}")
            self._inside = True
            _around.set((*map(ref, around), ref(self)))

    def _require_open(self, what: str) -> None:
        self._require_ours()
        match self._stage:
            case BlockStage.OPEN:
                return
            case BlockStage.NEW | BlockStage.ENTERING:
                raise errors.TransactionError(f"this block was not entered, it can't {what}; {ENTER}")
            case BlockStage.BROKEN:
                raise errors.TransactionError(
                    "messages of this transaction could not be stored; leave the block, it rolls back"
                )
            case _:
                whose = "this transaction" if self.txid is None else f"transaction {self.txid}"
                raise errors.TransactionClosed(f"{whose} is closed, it can't {what}; open another one")

    def _require_ours(self) -> None:
        if self._process != this_process():
            raise errors.TransactionError("a forked child can't use its parent's block; open another one")

    def _come_out(self, reason: errors.TxSagaError, error: BaseException | None) -> None:
        """Raise the reason why the block could not be decided, unless the block's own error propagates."""
        if isinstance(reason, errors.BrokerClosed) and self.txid is not None:
            reason = unknown(self.txid)
        if error is None or isinstance(error, errors.BrokerClosed):
            raise reason
        error.add_note(str(reason))
        logger.warning("transaction %s is undecided or unfinished: %s", self.txid, reason)


def unknown(txid: int) -> errors.OutcomeUnknown:
    """Return the error for a transaction under way when a broker, consumer or cluster is closed."""
    return errors.OutcomeUnknown(
        f"a broker, consumer or cluster was closed while transaction {txid} was in progress, so its outcome is not "
        f"known here; check `txsaga tx show {txid}` before you repeat it"
    )
