"""Evidence: the row that local work leaves in its own transaction."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from txsaga.model.records import Outcome

if TYPE_CHECKING:
    from sqlalchemy import Connection


class Evidence(Protocol):
    """One registered database and its evidence table."""

    @property
    def database(self) -> UUID:
        """The uuid that the evidence table of this very database carries."""

    def work(self, transaction: str, announce: Callable[[bool], None] = ...) -> AbstractContextManager[Connection]:
        """Open a local transaction whose first write is its evidence row; leaving the block commits it.

        `announce(False)` is called just before COMMIT, `announce(True)` just after it. `DecidedOtherwise`
        when an outcome stands already: then nothing ran. An error before COMMIT rolls back and passes
        through; an error at COMMIT that is no clear no, and a transaction that was ended inside the
        block, are `OutcomeUnknown`.
        """

    def fill(self, connection: Connection, transaction: str, slot: int, body: bytes) -> None:
        """Store a late body beside the evidence, in the local transaction."""

    def read(self, transaction: str) -> Outcome | None:
        """Return what the evidence says; None when there is none."""

    def fence(self, transaction: str) -> Outcome | None:
        """Write the rollback barrier unless evidence is there, and return what stands.

        None when the local transaction is still running: it was waited for a short time only.
        """

    def forget(self, transaction: str) -> None:
        """Delete the evidence of a decision that was acknowledged."""
