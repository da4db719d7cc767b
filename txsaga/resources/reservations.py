"""
A reservation: what a try did under a branch's name, and how far its confirm or cancel has got.

Its arguments are durable before the try runs, so that any process can confirm or cancel it. Once it is closed, a late
try has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class ReservationState(StrEnum):
    """The state of a reservation."""

    OPEN = "open"  # the try may be under way, or was abandoned
    HELD = "held"  # the try is done: a yes
    CANCELLING = "cancelling"  # closed; the cancel has not answered yet
    CONFIRMED = "confirmed"
    CANCELLED = "cancelled"


class Reservation(NamedTuple):
    """A reservation as the store keeps it."""

    state: ReservationState
    tried: bool  # the try is known to be done
    arguments: Mapping[str, object]
    settled: float | None = None  # seconds since it was confirmed or cancelled, by the store's clock
