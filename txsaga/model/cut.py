"""
A cut: table pointers, queue heads and home rows of ONE moment that is itself a tick (R7).

Decisions move rows and pointers at once, the log follows by a tick; a cut ticks first and reads everything
in that same snapshot, so it sees all of a decision or none of it. Foreign databases are never inside a cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A consistent read handle: heads by topic and queue, and the snapshot of the home rows."""

    tick: int
    heads: Mapping[str, tuple[int, ...]]
    home: Connection | None = None
