"""
A driver's own connection, taken from an engine's pool.

SQLAlchemy converts driver errors only on its own connections. Without the conversion here, an unavailable database
would raise the driver's bare error, which no caller retries. A connection that is given back with nothing open in it
needs no ROLLBACK by the pool: with some drivers that is a round trip.
"""

from __future__ import annotations

from sqlalchemy import Connection, Engine, PoolProxiedConnection
from sqlalchemy.exc import OperationalError


def raw(engine: Engine) -> PoolProxiedConnection:
    """Take a connection; raise the driver's errors as SQLAlchemy's."""
    try:
        return engine.raw_connection()
    except engine.dialect.loaded_dbapi.Error as error:
        raise OperationalError(None, None, error) from error


def give_back_idle(pooled: Connection | PoolProxiedConnection) -> None:
    """Give back a connection in which no transaction is open."""
    reset = getattr(pooled, "_close_special", None)  # what SQLAlchemy's own connections call after a COMMIT
    if reset is None:
        pooled.close()
    else:
        reset(transaction_reset=True)
