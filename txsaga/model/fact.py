"""A fact: one durable step, as observers hear it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fact:
    """A durable step of some transactions, or of a role."""

    txids: tuple[int, ...] = ()
    about: str = ""

    @property
    def name(self) -> str:
        """The word that logs and kill points use."""
        return type(self).__name__
