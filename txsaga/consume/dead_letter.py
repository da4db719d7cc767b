"""
Dead letters: messages that a group gave up on, with the cause, the attempts, and their original content.

A letter holds its own copy: the log may be dropped before an operator reads it. It keeps the id of its message, so that
a later consumer finds out what was already done for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from txsaga.core.identity import HalfId
from txsaga.core.layout import Batch, lay_out_one
from txsaga.core.message import Delivered, Message
from txsaga.core.records import LogEntry

CAUSE = 1_000
"""Characters of a cause that are kept."""


def short_cause(cause: str) -> str:
    """Return a cause as it is stored: its beginning, as text that every store accepts."""
    return cause[:CAUSE].encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


TAKEN_OVER = "another owner took it over"


def rolled_back(txid: int, why: str) -> str:
    """Return the cause for a message whose transaction did not commit."""
    return short_cause(f"transaction {txid} was rolled back: {why}")


class Copy(NamedTuple):
    """A message stored outside the log: its id, its time of birth, and a chunk of one record."""

    message: str
    born: datetime
    body: bytes

    @classmethod
    def of(cls, delivered: Delivered, **headers: str) -> Copy:
        """Return a copy of a message, with more headers."""
        copied = Message(
            delivered.topic,
            delivered.body,
            key=delivered.key,
            tag=delivered.tag,
            headers={**delivered.headers, **headers},
            ordering_key=delivered.ordering_key,
            persistent=delivered.persistent,
            unique_key=delivered.unique_key,
        )
        return cls(delivered.id, delivered.born, lay_out_one(copied))

    def delivered(self, topic: str, queue: int, offset: int) -> Delivered:
        """Return it as the original message."""
        half = HalfId.decode(self.message)
        entry = LogEntry(offset, 1, half.txid, half.part, half.attempt, half.chunk, self.born, self.body)
        batch = Batch(entry, topic=topic, queue=queue, qid=half.qid, store=half.store, start=offset)
        (found,) = batch.messages()
        return replace(found, index=half.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One message that a group gave up on."""

    id: int
    group: str
    topic: str
    queue: int
    offset: int
    at: datetime
    attempts: int
    cause: str
    history: Sequence[Mapping[str, object]]
    copy: Copy

    @property
    def message(self) -> Delivered:
        """The original message."""
        return self.copy.delivered(self.topic, self.queue, self.offset)
