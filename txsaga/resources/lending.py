"""
A driver's own connection out of an engine's pool.

SQLAlchemy names what goes wrong there only for connections of its own. If that were left out, a database that is away
would be told by the driver's bare error, which nobody waits for. What is given back with nothing open in it needs no
ROLLBACK of the pool's: with some drivers that is a round trip.
"""

from __future__ import annotations

from sqlalchemy import Connection, Engine, PoolProxiedConnection
from sqlalchemy.exc import OperationalError


def raw(engine: Engine) -> PoolProxiedConnection:
    """Take a connection; what the driver raises comes as SQLAlchemy's."""
    try:
        return engine.raw_connection()
    except engine.dialect.loaded_dbapi.Error as error:
        raise OperationalError(None, None, error) from error


def give_back_idle(pooled: Connection | PoolProxiedConnection) -> None:
    """Give a connection back in which no transaction is open."""
    reset = getattr(pooled, "_close_special", None)  # what SQLAlchemy's own connections say behind a COMMIT
    if reset is None:
        pooled.close()
    else:
        reset(transaction_reset=True)
