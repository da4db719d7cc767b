"""
The row that opens a local transaction, sent to PostgreSQL with its BEGIN: one round trip instead of two.

It must not say what an error means: what goes wrong is taken back, and the usual way, by the driver, meets it
again and says so; only a server that says nothing is waited for no longer. If it never runs, the row is written by that
way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from zlib import crc32

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection, Dialect, Table

from txsaga.core.decision import Decision
from txsaga.errors import StoreUnavailable
from txsaga.evidence import libpq
from txsaga.evidence.schema import MAIN, EvidenceKey
from txsaga.evidence.statements import MARKED

WORTH = 4
"""Uses for which it pays to prepare; where they don't last as long it is not tried again."""


class PreparedStatements:
    """Our statements in one session."""

    __slots__ = ("_given_up", "_there", "_uses")

    def __init__(self) -> None:
        self._there = self._given_up = False
        self._uses = 0

    def use(self, prepare: Callable[[], bool]) -> bool:
        """Tell whether they can be used, preparing them where that is worth it."""
        if not self._there and not self._given_up:
            self._there, self._uses = prepare(), 0
            self._given_up = not self._there
        self._uses += 1
        return self._there

    def lose(self) -> None:
        """Note that the server knows them no more."""
        self._there, self._given_up = False, self._uses < WORTH


_ROW = """insert into {table} (store, incarnation, txid, branch, outcome)
  values ($1, $2, $3, '{main}', {outcome}) returning {marked}"""


PATIENCE = 60.0
"""Seconds that a silent server is waited for, as in a vote."""

Driver = psycopg.Connection[object] | psycopg.AsyncConnection[object]


def begun_with(connection: Connection, table: Table, key: EvidenceKey) -> bool:
    """Begin the transaction of a connection with the row of a commit; False where that is left to the driver."""
    driver = connection.connection.driver_connection
    if not isinstance(driver, psycopg.Connection | psycopg.AsyncConnection) or not _is_plain(driver):
        return False
    name, preparing = _texts(table, connection.dialect)
    kept: PreparedStatements = connection.info.setdefault(name, PreparedStatements())
    store, incarnation, txid = key
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
        connection.invalidate()  # an answer that comes later is nobody's
        raise StoreUnavailable(f"the database of the local work does not answer: {silent}") from silent
    except libpq.SessionLost:
        pass
    except BaseException:
        connection.invalidate()  # interrupted: the answer that is under way is nobody's
        raise
    return False


def _is_plain(driver: Driver) -> bool:
    """Tell whether the driver would begin a transaction now, and keeps statements prepared."""
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
    """Return the name of the prepared row, and what prepares it."""
    place = dialect.identifier_preparer.format_table(table)
    row = _ROW.format(table=place, main=MAIN, outcome=int(Decision.COMMIT), marked=MARKED)
    name = f"txsaga_{crc32(row.encode()):08x}_first"
    return name, f"prepare {name}(text, int, bigint) as {row}"
