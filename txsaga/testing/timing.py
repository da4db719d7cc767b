"""How a contract test lets time pass for a store, whatever clock that store has."""

from collections.abc import Callable

Later = Callable[[float], None]
"""Lets so many seconds pass: moves a fake clock, or sleeps where the database's clock counts."""
