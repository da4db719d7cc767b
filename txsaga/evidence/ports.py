"""Evidence: the row that local work leaves in its own transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID

from txsaga.core.records import EvidenceOutcome

if TYPE_CHECKING:
    from sqlalchemy import Connection


class Evidence(Protocol):
    """One registered database and its evidence table."""

    @property
    def database(self) -> UUID:
        """The uuid that the evidence table of this very database carries."""

    @property
    def steps(self) -> StepWork:
        """The steps of sagas in this database."""

    def in_loop(self) -> Evidence:
        """Return the same evidence for local work within an event loop; `ConfigError` where it takes none."""

    def work(self, transaction: str, announce: Callable[[bool], None] = ...) -> AbstractContextManager[Connection]:
        """Open a local transaction whose first write is its evidence row; leaving the block commits it.

        `announce(False)` is called just before COMMIT, `announce(True)` just after it. `DecidedOtherwise`
        when an outcome stands already: then nothing ran. What the block raises rolls back and always passes
        through as it is. An error at COMMIT that is no clear no, and a transaction that a block rolled back inside
        and then left without an error, are `OutcomeUnknown`. One that was committed inside is `TransactionClosed`:
        all of it is committed. Within an event loop it is an `AsyncConnection`.
        """

    def fill(self, connection: Connection, transaction: str, slot: int, body: bytes) -> None:
        """Store a late body beside the evidence, in the local transaction."""

    def filled(self, connection: Connection, transaction: str) -> frozenset[int]:
        """Return the slots whose bodies lie in the local transaction."""

    def read(self, transaction: str) -> EvidenceOutcome | None:
        """Return what the evidence says; None when there is none."""

    def read_many(self, transactions: Sequence[str]) -> Mapping[str, EvidenceOutcome]:
        """Return what the evidence says of each transaction that has some, in one question."""

    @property
    def at_once(self) -> int:
        """How many transactions may be fenced at the same time, each on a connection of its own."""

    def fence(self, transaction: str) -> EvidenceOutcome | None:
        """Write the rollback barrier unless evidence is there, and return what stands.

        None when the local transaction is still running: it was waited for a short time only.
        """


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
