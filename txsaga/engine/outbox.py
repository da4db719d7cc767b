"""
The messages that a transaction has sent so far, by queue, until they are stored.

They are laid out as chunks in the order they were sent, per queue. What lies here is not durable; if the
process dies, the transaction never happened. It has a bound, since all of it goes into one statement: a
heavier one would break the connection, and nobody could tell whether it was stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import add

from txsaga.engine.topics import Topics
from txsaga.errors import InvalidMessage, TransactionError
from txsaga.model.chunk import MAX_BYTES, pieces
from txsaga.model.layout import lay_out, lay_out_columns, lay_out_one, weight
from txsaga.model.message import Message
from txsaga.model.records import Row
from txsaga.model.topic import Topic, Way
from txsaga.model.validation import validate_columns

MOST = 64 * 1024 * 1024
"""Bytes that are stored in one step."""
INCOMPLETE = "a message was refused for which there was no room; the others are not committed without it"


class Outbox:
    """Messages of one transaction that are not stored yet."""

    def __init__(self, topics: Topics, way: Way) -> None:
        self._topics, self._way = topics, way
        self._loose: dict[int, list[Message]] = {}
        self._rows: list[Row] = []
        self._chunks: dict[int, int] = {}
        self.bytes = 0
        self.count = 0
        self.overflowed = False  # something was refused for which there was no room

    def add(self, message: Message) -> None:
        """Keep a message."""
        message, qid = self._topics.admit(message, self._way)
        self._grow(weight(message), 1)
        self._loose.setdefault(qid, []).append(message)

    def add_many(
        self, name: str, bodies: Sequence[bytes], keys: Sequence[str] | None, tags: Sequence[str] | None
    ) -> None:
        """Keep many messages of one topic as columns, without an object each."""
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
        """Hand over everything as rows."""
        self._pack()
        taken, self._rows = self._rows, []
        self.bytes = self.count = 0
        return taken

    def take_whole(self) -> list[Row]:
        """Hand over everything of one transaction; `TransactionError` when something of it was refused."""
        if self.overflowed:
            raise TransactionError(INCOMPLETE)
        return self.take()

    def _grow(self, held: int, count: int) -> None:
        if self.bytes + held > MOST:
            self.overflowed = True
            raise InvalidMessage(
                f"{self.bytes + held:,} bytes would be stored in one step, at most {MOST:,} are; "
                "send fewer at a time: in a block pass key=… to store as you send, in a flow send in several steps"
            )
        self.bytes += held
        self.count += count

    def _spread(
        self, topic: Topic, keys: Sequence[str] | None, sizes: Sequence[int]
    ) -> Iterator[tuple[Sequence[int], int]]:
        """Yield which records go to which queue: by key, or a chunk each by turns."""
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
