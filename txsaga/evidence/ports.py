"""Evidence: the row that local work writes in its own transaction."""

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
        """The uuid stored in this database next to the evidence table."""

    @property
    def steps(self) -> StepWork:
        """The steps of sagas in this database."""

    def in_loop(self) -> Evidence:
        """Return the same evidence for local work in an event loop; `ConfigError` without an async engine."""

    def work(self, transaction: str, announce: Callable[[bool], None] = ...) -> AbstractContextManager[Connection]:
        """Open a local transaction whose first write is its evidence row; leaving the block commits it.

        `announce(False)` is called just before COMMIT, `announce(True)` just after it. `DecidedOtherwise` if an
        outcome is already recorded: then nothing ran. An exception of the block rolls back and always propagates
        unchanged. `OutcomeUnknown` for an error at COMMIT that is not an explicit refusal, and for a block that
        rolled back its transaction and exited without an error. `TransactionClosed` for a block that committed:
        all of its work is committed. In an event loop the connection is an `AsyncConnection`.
        """

    def fill(self, connection: Connection, transaction: str, slot: int, body: bytes) -> None:
        """Store a late body with the evidence, in the local transaction."""

    def filled(self, connection: Connection, transaction: str) -> frozenset[int]:
        """Return the slots whose bodies are stored in the local transaction."""

    def read(self, transaction: str) -> EvidenceOutcome | None:
        """Return the recorded outcome; None if there is no evidence."""

    def read_many(self, transactions: Sequence[str]) -> Mapping[str, EvidenceOutcome]:
        """Return the recorded outcome of each transaction that has evidence, in one query."""

    @property
    def at_once(self) -> int:
        """How many transactions may be fenced concurrently, each on its own connection."""

    def fence(self, transaction: str) -> EvidenceOutcome | None:
        """Write the rollback barrier unless evidence exists, and return the recorded outcome.

        None if the local transaction is still running after a short wait.
        """


Work = Callable[["Connection"], object]
Announce = Callable[[bool], None]
"""Called with False just before COMMIT, with True just after it."""


class Ran(NamedTuple):
    """The result of a step, and whether this call ran it."""

    output: object
    fresh: bool


class StepWork(Protocol):
    """The steps of one registered database."""

    def run(self, transaction: str, row: str, work: Work | str, input: Mapping[str, object], announce: Announce) -> Ran:
        """Do work once: a function called with the connection, or a statement with its values.

        The row is the first write and shares the commit; the function's result is stored with it. If the row already
        exists, its stored result is returned. `StepRefused` after a barrier. `OutcomeUnknown` for an error at COMMIT
        that is not an explicit refusal; after any other error nothing was done.
        """

    def fence(self, transaction: str, row: str) -> bool | None:
        """Return whether a step was done; if not, prevent it for ever. None while it is still running."""

    def is_running(self, transaction: str, row: str) -> bool:
        """Return whether another transaction is doing a step now, after a short wait for it."""

    def output(self, transaction: str, row: str) -> str | None:
        """Return the stored result of a step that was done."""
