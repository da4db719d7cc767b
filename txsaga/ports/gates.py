"""
Gates: whoever looks at staged rows before a decision, and votes on it.

A gate says yes or no and never raises for what it finds: one that can't come to a verdict says no, with its error as
the evidence. If it never answers, its time runs out, and that is a no.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from txsaga.model.ballot import Ballot, Cast
from txsaga.model.gate import Subject


class Gate(Protocol):
    """One gate, or some that vote together."""

    def warm(self) -> None:
        """Start what takes long to start, while rows are still being staged; `UnknownSuite` before anything is."""

    def ballot(self, name: str) -> Ballot:
        """Return the ballot that it votes in."""

    def judge(self, subject: Subject) -> Sequence[Cast]:
        """Look at rows, and return a vote for each voter of the ballot."""
