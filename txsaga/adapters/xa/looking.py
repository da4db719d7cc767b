"""
A session to look with, beside the pool of the resource.

Whoever has to find out what two sessions wait for must not wait for a third: the pool may have no other. It is opened
by the first question, with the pool's own way to connect, and closed with the look.
"""

from __future__ import annotations

from contextlib import suppress

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from txsaga.adapters.evidence.answers import code_of, edge
from txsaga.adapters.xa import codes


class Looking:
    """One session of its own."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine, self.name = engine, name
        self._beside: Engine | None = None
        self._own: Connection | None = None

    @property
    def connection(self) -> Connection:
        """The session, opened by its first use and after it was lost."""
        if self._own is None:
            with edge(self.name):
                self._beside = Engine(self._engine.pool.recreate(), self._engine.dialect, self._engine.url)
                self._own = self._beside.connect().execution_options(isolation_level="AUTOCOMMIT")
        return self._own

    def close(self) -> None:
        """Close it."""
        own, beside, self._own, self._beside = self._own, self._beside, None, None
        if own is not None:
            with suppress(SQLAlchemyError):  # it is over in any case
                own.close()
        if beside is not None:
            beside.dispose()


def is_cancelled(error: BaseException) -> bool:
    """Tell whether an error is that of a statement that was cancelled, SQLAlchemy's or its driver's."""
    return code_of(error) in codes.CANCELLED
