"""
A replay: the messages of a transaction that was rolled back, sent again in a new one that is linked to it.

Only what is stored can come again. What the transaction would have done beside it, local work, late bodies,
consumed offsets, is the caller's: it was not done, and a replay does not do it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

REPLAY, REPLAYED = "REPLAY", "REPLAYED"
"""What the audit rows of the new and of the old transaction are called."""


class Resent(NamedTuple):
    """Messages that come again, in the queue where they were to come."""

    topic: str
    queue: int
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a replay does, or would do."""

    txid: int
    replayed_as: int | None  # None: it was only looked at
    key: str | None
    messages: tuple[Resent, ...]
    left_out: tuple[str, ...]
    """What can't come again."""
    again: bool = False
    """It had been replayed before, and nothing was done now."""
