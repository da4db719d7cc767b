"""A local transaction that carries its own evidence: first the row, then the user's work, one commit.

Before COMMIT every exit rolls back and is a definite no. At COMMIT only an explicit refusal by the server is a no; any
other error leaves the outcome unknown, and the row is read later. An exception of the block propagates unchanged.

Work whose row is gone must not be committed: some errors (a deadlock, a full disk) roll back the whole transaction, and
a program that swallows them would go on in a second one, without evidence. `commit()` inside the block is refused. A
COMMIT that bypasses SQLAlchemy, and DDL on MySQL and MariaDB, commit the row before the work is complete: the later
work is committed as well, and the block raises.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, Final
from weakref import WeakSet

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.pq.abc import PGconn
from sqlalchemy import Connection, Engine, RootTransaction, Select, Table, event, text
from sqlalchemy.exc import DBAPIError

from txsaga.core.decision import Decision
from txsaga.core.failure import on_failure
from txsaga.errors import OutcomeUnknown, RightsMissing, StoreUnavailable, TransactionClosed, TransactionError
from txsaga.evidence import libpq
from txsaga.evidence.driver_errors import is_forbidden, refuses_commit
from txsaga.evidence.ports import Announce
from txsaga.evidence.schema import EVIDENCE, MAIN, EvidenceKey
from txsaga.evidence.sessions import IN_ERROR, PLAIN, session_state
from txsaga.evidence.statements import MARKED

_of_parents: list[object] = []
"""Kept in a forked child: an unreferenced connection returns to its pool, which rolls back the parent's session."""

SAVEPOINT: Final = "txsaga_work"
"""Savepoint set after the row: it exists as long as the row's transaction."""

_at_work: WeakSet[Connection] = WeakSet()
_refused: WeakSet[Connection] = WeakSet()
"""Those of `_at_work` where a commit() was refused: SQLAlchemy considers their transaction over."""
_engines: WeakSet[Engine] = WeakSet()


@contextmanager
def committing(
    transaction: RootTransaction, id: str, question: Callable[[], Select[int]], announce: Announce
) -> Iterator[None]:
    """Run a block in an open transaction and commit it; `question` builds the query for its evidence row."""
    mark, process = mark_of(transaction.connection), os.getpid()
    refuse_commits(transaction.connection)
    with in_its_process(transaction):  # after a commit() or rollback() in the block SQLAlchemy refuses to continue
        with on_failure(_give_up, transaction, process):
            yield
            if os.getpid() != process:
                raise TransactionError(f"a forked child can't use its parent's local transaction of {id}")
            whole = _is_whole(transaction, id, question, mark)
            announce(False)
            allow_commits(transaction.connection)
        _commit(transaction, id)
    announce(True)
    if not whole:
        raise TransactionClosed(
            f"the local transaction of {id} was committed before the end of its block, by a COMMIT or by DDL: the "
            "work before that is durable, and its messages follow; don't repeat it, leave the commit to the block"
        )


PATIENCE = 60.0
"""Seconds to wait for a silent server, as in a vote."""


def begun_with(connection: Connection, table: Table, key: EvidenceKey) -> bool:
    """Begin a PostgreSQL transaction with its commit row, in one round trip; False if the driver is to do both.

    It interprets no errors: it rolls back, and the driver meets the error again and reports it.
    """
    driver = connection.connection.driver_connection
    if not isinstance(driver, psycopg.Connection | psycopg.AsyncConnection) or driver.autocommit:
        return False
    if driver.pgconn.transaction_status != TransactionStatus.IDLE:
        return False
    place = connection.dialect.identifier_preparer.format_table(table)
    row = f"""insert into {place} (store, incarnation, txid, branch, outcome)
  values ('{key.store}', {key.incarnation}, {key.txid}, '{MAIN}', {int(Decision.COMMIT)}) returning {MARKED}"""
    with on_failure(connection.invalidate):  # an answer that is still to come would be read by the next user
        try:
            if not _ask(driver.pgconn, f"{libpq.begin(driver)}; {row}").state:
                return True
            _ask(driver.pgconn, "rollback")
        except libpq.ServerSilent as silent:
            raise StoreUnavailable(f"the database of the local work does not answer: {silent}") from silent
        except libpq.SessionLost:
            pass
    return False


def _ask(session: PGconn, text: str) -> libpq.ServerAnswer:
    libpq.send(session, text, PATIENCE)
    return libpq.receive(session, PATIENCE)[-1]


def mark_work(connection: Connection) -> None:
    """Mark the transaction of the row just written; on PostgreSQL the insert itself does it."""
    if connection.dialect.name != "postgresql":
        connection.exec_driver_sql(f"savepoint {SAVEPOINT}").close()


def refuse_commits(connection: Connection) -> None:
    """Refuse commits on a connection until its block ends; a listener on its engine does that."""
    _at_work.add(connection)
    if connection.engine not in _engines:
        event.listen(connection.engine, "commit", _refuse)
        _engines.add(connection.engine)


def allow_commits(connection: Connection) -> None:
    """Let the end of the block commit."""
    _at_work.discard(connection)
    _refused.discard(connection)


def _refuse(connection: Connection) -> None:
    if connection in _at_work:
        _refused.add(connection)
        connection.connection.rollback()
        raise TransactionError(
            "commit() inside the block of a transaction is refused: its work was rolled back; leave the "
            "commit to the block"
        )


class in_its_process:
    """Exits a context only in the process that entered it: a forked child would use its parent's session."""

    __slots__ = ("_entered", "_process")

    def __init__(self, entered: AbstractContextManager[Any]) -> None:
        self._entered = entered

    def __enter__(self) -> None:
        self._process = os.getpid()
        self._entered.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and os.getpid() != self._process:
            _of_parents.append(self._entered)
        else:
            self._entered.__exit__(kind, error, trace)


def _is_whole(transaction: RootTransaction, id: str, question: Callable[[], Select[int]], mark: str | None) -> bool:
    """Return whether all work is in the row's transaction; raise if that was rolled back."""
    connection = transaction.connection
    if not transaction.is_active:
        if connection in _refused:
            raise TransactionError(
                f"the local transaction of {id} was rolled back, as a commit() inside its block was refused; "
                "leave the commit to the block"
            )
        raise OutcomeUnknown(
            f"the local transaction of {id} was ended inside its block; leave commit and rollback to the block"
        )
    # PostgreSQL answers COMMIT of a failed transaction with ROLLBACK, which drivers treat as success.
    if session_state(connection) == IN_ERROR:
        raise _rolled_back(id)
    if mark is not None and mark_of(connection) == mark:
        return True
    if connection.dialect.name == "postgresql":
        whole = _is_there(connection, question().where(text("xmin = pg_current_xact_id()::xid")), id)
    else:
        whole = _released(connection, id)
    if not whole and not _is_there(connection, question(), id):
        raise _rolled_back(id)
    return whole


def _released(connection: Connection, id: str) -> bool:
    """Return whether the savepoint set after the row still existed."""
    try:
        connection.exec_driver_sql(f"release savepoint {SAVEPOINT}").close()
    except DBAPIError as error:
        if error.connection_invalidated:
            raise _rolled_back(id) from error
        return False
    return True


def _is_there(connection: Connection, question: Select[int], id: str) -> bool:
    try:
        return bool(connection.scalar(question, execution_options=PLAIN))
    except DBAPIError as error:
        if is_forbidden(error):
            raise RightsMissing(
                f"the role of the local transaction of {id} may not read {EVIDENCE}; grant it SELECT, or "
                "RESET ROLE before the block ends"
            ) from error
        raise _rolled_back(id) from error


def _rolled_back(id: str) -> TransactionError:
    return TransactionError(
        f"the database rolled the local transaction of {id} back inside its block; let that error leave the block"
    )


def mark_of(connection: Connection) -> str | None:
    """Return the mark of the row's transaction as the server last reported it; None if it reported none."""
    info = getattr(connection.connection.driver_connection, "info", None)
    told = getattr(info, "parameter_status", lambda _: None)("application_name")
    return str(told) if told and " #" in told else None


def _give_up(transaction: RootTransaction, process: int) -> None:
    allow_commits(transaction.connection)
    if os.getpid() == process:
        _roll_back(transaction)


def _roll_back(transaction: RootTransaction) -> None:
    if not transaction.is_active:
        return  # the block itself ended it
    try:
        transaction.rollback()
    except DBAPIError as lost:
        transaction.connection.invalidate(lost)  # the server rolls back when the session is lost


def _commit(transaction: RootTransaction, id: str) -> None:
    try:
        transaction.commit()
    except Exception as error:  # whatever the error, the server may have committed
        transaction.connection.invalidate(error)
        if isinstance(error, DBAPIError) and refuses_commit(error):
            raise
        raise OutcomeUnknown(
            f"the local transaction of {id} may or may not have committed: {' '.join(str(error).split())}"
        ) from error
