"""
The messages that a transaction has sent so far, by queue, until they are stored.

They are laid out as chunks in the order they were sent, per queue. What lies here is not durable; if the
process dies, the transaction never happened.
"""

from __future__ import annotations

from collections.abc import Sequence

from txsaga.engine.topics import Topics
from txsaga.errors import InvalidMessage
from txsaga.model.chunk import MAX_RECORDS
from txsaga.model.layout import lay_out_columns, rows
from txsaga.model.message import MAX_BODY, Message
from txsaga.model.records import Row
from txsaga.model.topic import Topic, Way


class Outbox:
    """Messages of one transaction that are not stored yet."""

    def __init__(self, topics: Topics, way: Way) -> None:
        self._topics, self._way = topics, way
        self._loose: dict[int, list[Message]] = {}
        self._rows: list[Row] = []
        self._chunks: dict[int, int] = {}
        self.bytes = 0
        self.count = 0

    def add(self, message: Message) -> int:
        """Keep a (validated) message; return its queue."""
        qid = self._topics.queue_for(message, self._way)
        self._loose.setdefault(qid, []).append(message)
        self.bytes += len(message.body)
        self.count += 1
        return qid

    def add_many(
        self, name: str, bodies: Sequence[bytes], keys: Sequence[str] | None, tags: Sequence[str] | None
    ) -> None:
        """Keep many messages of one topic as columns, without an object each."""
        _check_columns(bodies, keys, tags)
        topic = self._topics.open(name, self._way)
        self._pack()
        for picked, qid in _spread(topic, len(bodies), keys):
            body = lay_out_columns(
                [bodies[at] for at in picked],
                key=None if keys is None else [keys[at] for at in picked],
                tag=None if tags is None else [tags[at] for at in picked],
            )
            self._rows.append(Row(qid, self._next_chunk(qid), len(picked), body))
        self.bytes += sum(map(len, bodies))
        self.count += len(bodies)

    def take(self) -> list[Row]:
        """Hand over everything as rows."""
        self._pack()
        taken, self._rows = self._rows, []
        self.bytes = self.count = 0
        return taken

    def _pack(self) -> None:
        if not self._loose:
            return
        for row in rows(self._loose):
            self._rows.append(row._replace(chunk=self._next_chunk(row.qid)))
        self._loose = {}

    def _next_chunk(self, qid: int) -> int:
        chunk = self._chunks.get(qid, 0)
        self._chunks[qid] = chunk + 1
        return chunk


def _spread(topic: Topic, count: int, keys: Sequence[str] | None) -> list[tuple[Sequence[int], int]]:
    """Which records go to which queue: by key, or a chunk each by turns."""
    if keys is None:
        pieces = [range(at, min(at + MAX_RECORDS, count)) for at in range(0, count, MAX_RECORDS)]
        return [(piece, topic.qids[turn % len(topic.qids)]) for turn, piece in enumerate(pieces)]
    by_queue: dict[int, list[int]] = {}
    for at, key in enumerate(keys):
        by_queue.setdefault(topic.queue_for(key, 0), []).append(at)
    return [
        (picked[at : at + MAX_RECORDS], qid)
        for qid, picked in sorted(by_queue.items())
        for at in range(0, len(picked), MAX_RECORDS)
    ]


def _check_columns(bodies: Sequence[bytes], keys: Sequence[str] | None, tags: Sequence[str] | None) -> None:
    for what, column in (("keys", keys), ("tags", tags)):
        if column is not None and len(column) != len(bodies):
            raise InvalidMessage(f"{len(bodies)} bodies came with {len(column)} {what}; give one each")
    if set(map(type, bodies)) - {bytes}:
        raise InvalidMessage("a body is not bytes; encode it first")
    biggest = max(map(len, bodies), default=0)
    if biggest > MAX_BODY:
        raise InvalidMessage(f"a body has {biggest:,} bytes; at most {MAX_BODY:,} are stored")
