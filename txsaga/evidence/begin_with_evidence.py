"""
Sends the row that opens a local transaction to PostgreSQL with its BEGIN: one round trip instead of two.

This module must not interpret errors: it rolls back, and the usual path through the driver meets the error again and
reports it; only a silent server ends in an error here. If this never runs, that path writes the row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from zlib import crc32

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection, Dialect, Table

from txsaga.core.decision import Decision
from txsaga.core.failure import on_failure
from txsaga.errors import StoreUnavailable
from txsaga.evidence import libpq
from txsaga.evidence.schema import MAIN, EvidenceKey
from txsaga.evidence.statements import MARKED

WORTH = 4
"""Number of uses for which preparing pays off; if statements are lost earlier, they are not prepared again."""


class PreparedStatements:
    """Our prepared statements in one session."""

    __slots__ = ("_given_up", "_there", "_uses")

    def __init__(self) -> None:
        self._there = self._given_up = False
        self._uses = 0

    def use(self, prepare: Callable[[], bool]) -> bool:
        """Return whether they can be used, preparing them if that is worthwhile."""
        if not self._there and not self._given_up:
            self._there, self._uses = prepare(), 0
            self._given_up = not self._there
        self._uses += 1
        return self._there

    def lose(self) -> None:
        """Record that the server has dropped them."""
        self._there, self._given_up = False, self._uses < WORTH


_ROW = """insert into {table} (store, incarnation, txid, branch, outcome)
  values ($1, $2, $3, '{main}', {outcome}) returning {marked}"""


PATIENCE = 60.0
"""Seconds to wait for a silent server, as in a vote."""

Driver = psycopg.Connection[object] | psycopg.AsyncConnection[object]


def begun_with(connection: Connection, table: Table, key: EvidenceKey) -> bool:
    """Begin a connection's transaction with its commit row; False if that is left to the driver."""
    driver = connection.connection.driver_connection
    if not isinstance(driver, psycopg.Connection | psycopg.AsyncConnection) or not _is_plain(driver):
        return False
    name, preparing = _texts(table, connection.dialect)
    kept: PreparedStatements = connection.info.setdefault(name, PreparedStatements())
    store, incarnation, txid = key
    with on_failure(connection.invalidate):  # an answer that is still to come would be read by the next user
        try:
            if not kept.use(lambda: not _ask(driver, preparing).state):
                return False
            answer = _ask(driver, f"{libpq.begin(driver)}; execute {name}('{store}', {incarnation}, {txid})")
            if not answer.state:
                return True
            if answer.state == libpq.UNPREPARED:
                kept.lose()
            _ask(driver, "rollback")
        except libpq.ServerSilent as silent:
            raise StoreUnavailable(f"the database of the local work does not answer: {silent}") from silent
        except libpq.SessionLost:
            pass
    return False


def _is_plain(driver: Driver) -> bool:
    """Return whether the driver would begin a transaction now and may keep prepared statements."""
    return (
        not driver.autocommit
        and driver.prepare_threshold is not None
        and driver.pgconn.transaction_status == TransactionStatus.IDLE
    )


def _ask(driver: Driver, text: str) -> libpq.ServerAnswer:
    libpq.send(driver.pgconn, text, PATIENCE)
    return libpq.receive(driver.pgconn, PATIENCE)[-1]


@cache
def _texts(table: Table, dialect: Dialect) -> tuple[str, str]:
    """Return the name of the prepared insert, and the statement that prepares it."""
    place = dialect.identifier_preparer.format_table(table)
    row = _ROW.format(table=place, main=MAIN, outcome=int(Decision.COMMIT), marked=MARKED)
    name = f"txsaga_{crc32(row.encode()):08x}_first"
    return name, f"prepare {name}(text, int, bigint) as {row}"
