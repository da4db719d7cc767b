"""How a contract test lets time pass for a store, whatever clock that store has."""

from collections.abc import Callable
from datetime import timedelta

Later = Callable[[float], None]
"""Lets so many seconds pass: moves a fake clock, or sleeps where the database's clock counts."""

IN_TIME, OVER = 2.0, 2.2
"""Seconds of what is used before it is over, longer than a busy machine takes to use it; and when it is over."""

Unseen = Callable[[str, timedelta], None]
"""Lets so much time pass since a member of a group was seen: moves a fake clock, or what the database noted."""
