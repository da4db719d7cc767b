"""
A driver's own connection out of an engine's pool.

SQLAlchemy names what goes wrong there only for connections of its own. If that were left out, a database that is away
would be told by the driver's bare error, which nobody waits for.
"""

from __future__ import annotations

from sqlalchemy import Engine, PoolProxiedConnection
from sqlalchemy.exc import OperationalError


def raw(engine: Engine) -> PoolProxiedConnection:
    """Take a connection; what the driver raises comes as SQLAlchemy's."""
    try:
        return engine.raw_connection()
    except engine.dialect.loaded_dbapi.Error as error:
        raise OperationalError(None, None, error) from error
