"""The work of steps in a database: each leaves a row in its own commit, and a barrier keeps late ones out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from sqlalchemy import Connection

Work = Callable[["Connection"], object]
Announce = Callable[[bool], None]
"""Told False just before COMMIT, True just after it."""


class Ran(NamedTuple):
    """What a step came to, and whether it ran just now."""

    output: object
    fresh: bool


class StepWork(Protocol):
    """The steps of one registered database."""

    def run(self, transaction: str, row: str, work: Work | str, input: Mapping[str, object], announce: Announce) -> Ran:
        """Do work once: a function with the connection, or a statement with its values.

        The row is the first write and shares the commit; what the function returns is kept beside it. A row that is
        there already is its answer. `StepRefused` where a barrier stands. An error at COMMIT that is no clear no is
        `OutcomeUnknown`; any other error says that nothing was done.
        """

    def fence(self, transaction: str, row: str) -> bool | None:
        """Tell whether a step was done; where it was not, keep it out for ever. None while it is still running."""

    def output(self, transaction: str, row: str) -> str | None:
        """Return what a step that was done has left beside its row."""
