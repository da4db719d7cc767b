"""
Branches within an event loop, on the asyncio engine that a resource was registered with.

They are the branches of threads, on a session that suspends only its task. Everything else that is asked about them
runs in threads, on the other engine. If these lead to different databases, the session itself reports it at its vote.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine

from txsaga.errors import ConfigError
from txsaga.flows.branch import BranchId
from txsaga.flows.step_records import Journalled
from txsaga.resources.participant import EnlistedBranch, LockPatience
from txsaga.resources.postgres_branch import PostgresBranch
from txsaga.resources.postgres_journal import PostgresJournal
from txsaga.resources.postgres_session import DriverSession, PostgresSession

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

Shown = Callable[[Connection], object]
"""Converts a connection into what the user works with."""


def loops_of(name: str, loops: AsyncEngine | None, *drivers: str) -> AsyncEngine:
    """Return the engine that a resource uses within an event loop; `ConfigError` if it has none."""
    if loops is None:
        raise ConfigError(
            f"resource {name!r} is registered with an engine for threads; "
            "register it with create_async_engine(…) to work in it within an event loop"
        )
    if loops.dialect.driver not in drivers:
        able = "".join(f"open its engine with {loops.dialect.name}+{driver}://…, or " for driver in drivers)
        raise ConfigError(
            f"resource {name!r} takes no part in a coordinated transaction within an event loop through "
            f"{loops.dialect.driver}; {able}enter the block in a thread, by asyncio.to_thread"
        )
    return loops


class PostgresInLoop:
    """Opens the branches of one PostgreSQL database within an event loop."""

    def __init__(
        self,
        engine: AsyncEngine,
        enlisted: Callable[[BranchId, Callable[[], PostgresSession]], PostgresBranch],
        noted: Callable[[BranchId, Sequence[Journalled], Engine, LockPatience], PostgresJournal],
        patience: float,
    ) -> None:
        self.engine, self._enlisted, self._noted, self._patience = engine, enlisted, noted, patience

    def enlist(self, branch: BranchId) -> PostgresBranch:
        """Open a transaction for a branch; its handle is SQLAlchemy's asynchronous connection."""
        return self._enlisted(branch, self._opened)

    def enlist_driver(self, branch: BranchId) -> PostgresBranch:
        """Open a transaction for a branch, with the driver's own connection as its handle."""
        return self._enlisted(branch, lambda: DriverSession(self.engine.sync_engine, self._patience))

    def enlist_journal(
        self, branch: BranchId, statements: Sequence[Journalled], *, waits: LockPatience
    ) -> PostgresJournal:
        """Open a session for a branch whose work is sent with its vote."""
        return self._noted(branch, statements, self.engine.sync_engine, waits)

    def _opened(self) -> PostgresSession:
        from sqlalchemy.ext.asyncio import AsyncConnection

        connection = self.engine.sync_engine.connect()
        return PostgresSession(connection, self._patience, AsyncConnection(self.engine, connection))


class SqliteInLoop:
    """Opens the branches of one SQLite file within an event loop."""

    def __init__(self, engine: AsyncEngine, enlisted: Callable[[BranchId, Engine, Shown], EnlistedBranch]) -> None:
        self._engine, self._enlisted = engine, enlisted

    def enlist(self, branch: BranchId) -> EnlistedBranch:
        """Open a transaction for a branch; its handle is SQLAlchemy's asynchronous connection."""
        from sqlalchemy.ext.asyncio import AsyncConnection

        return self._enlisted(branch, self._engine.sync_engine, lambda it: AsyncConnection(self._engine, it))
