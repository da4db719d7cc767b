"""
Dead letters: messages that a group gave up, with why and how often, and their content as it was.

A letter holds its own copy: the log it came from may be dropped before anybody looks. It keeps the id of its message,
so that whoever takes it again finds out what was done of it already.
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
"""Characters that are kept of a cause."""


def short_cause(cause: str) -> str:
    """Return a cause as it is kept: the beginning of it, as text that every store takes."""
    return cause[:CAUSE].encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


TAKEN_OVER = "another owner took it over"


def rolled_back(txid: int, why: str) -> str:
    """Return the cause of a message whose transaction did not commit."""
    return short_cause(f"transaction {txid} was rolled back: {why}")


class Copy(NamedTuple):
    """A message that does not lie in the log: its id, when it was born, and a chunk of one record."""

    message: str
    born: datetime
    body: bytes

    @classmethod
    def of(cls, delivered: Delivered, **headers: str) -> Copy:
        """Copy a message, with more headers."""
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
        """Read it as the message that it was."""
        half = HalfId.decode(self.message)
        entry = LogEntry(offset, 1, half.txid, half.part, half.attempt, half.chunk, self.born, self.body)
        batch = Batch(entry, topic=topic, queue=queue, qid=half.qid, store=half.store, start=offset)
        (found,) = batch.messages()
        return replace(found, index=half.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One message that a group gave up."""

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
        """The message as it was."""
        return self.copy.delivered(self.topic, self.queue, self.offset)
