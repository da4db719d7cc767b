"""
Where a reader begins that has no position yet.

A word that is none is refused: if a typing error were taken for "latest", all that lies there already would
never be read.
"""

from datetime import datetime
from typing import Literal

from txsaga.consume.ports import Log
from txsaga.errors import ConfigError

Start = Literal["earliest", "latest"] | datetime | int


def first_offset(log: Log, qid: int, start: Start) -> int:
    """Return where a reader of a queue begins; a number outside of what the queue holds is moved to its edge."""
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
