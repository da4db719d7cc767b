"""
Where a reader without a position begins.

An unknown value is refused: if a typing error were taken for "latest", the existing messages would never be read.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Literal

from txsaga.errors import ConfigError

if TYPE_CHECKING:
    from txsaga.consume.log_store import Log


Start = Literal["earliest", "latest"] | datetime | int


def first_offset(log: Log, qid: int, start: Start) -> int:
    """Return the offset where a reader of a queue begins; a number outside the queue is moved to its nearest end."""
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise ConfigError(f"start {start} has no time zone; use pendulum or an aware datetime")
        return log.offset_at(qid, start)
    if isinstance(start, int) and start < 0:
        raise ConfigError(f"start {start} is no offset: they begin at 0")
    if isinstance(start, bool) or (not isinstance(start, int) and start not in ("earliest", "latest")):
        raise ConfigError(f"start {start!r} is none of 'earliest', 'latest', an aware datetime, an offset")
    bounds = log.bounds([qid])[qid]
    if isinstance(start, int):
        return min(max(start, bounds.tail), bounds.head)
    return bounds.tail if start == "earliest" else bounds.head
