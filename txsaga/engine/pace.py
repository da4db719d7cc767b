"""
How often a role runs: soon where there is work, seldom where there is none.

It spares work, and makes it at most so much later. Without a pace everything would be done sooner, by many more rounds.
"""

from __future__ import annotations

from typing import NamedTuple


class Pace(NamedTuple):
    """Seconds between the rounds of a role."""

    pause: float
    """After a round that found nothing."""
    rest: float
    """At most, when round after round finds nothing."""
    breath: float = 0.0
    """After a round that did something: meanwhile work gathers, where a round costs much and each thing little."""
