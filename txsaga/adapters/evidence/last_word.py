"""
COMMIT of a local transaction, sent to PostgreSQL past its driver, which finds itself idle behind it.

So it has nothing left to say when SQLAlchemy has it commit, and whoever counts its transactions still does. Where
somebody listens to commits, or the session is not plainly in its transaction, it is left to the driver. If it never
runs, the driver commits.
"""

from __future__ import annotations

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from txsaga.adapters.evidence import libpq


def commit_past(connection: Connection) -> None:
    """Commit, unless that is left to the driver; raise what SQLAlchemy would."""
    driver = connection.connection.driver_connection
    if not isinstance(driver, psycopg.Connection | psycopg.AsyncConnection) or connection.dispatch.commit:
        return
    session = driver.pgconn
    if session.transaction_status != TransactionStatus.INTRANS or session.pipeline_status != PipelineStatus.OFF:
        return
    try:
        libpq.commit(driver)
    except psycopg.Error as error:
        raise DBAPIError.instance(
            None, None, error, psycopg.Error, connection_invalidated=driver.closed, dialect=connection.dialect
        ) from error
