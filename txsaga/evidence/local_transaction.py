"""A local transaction that carries its own evidence: the row first, the user's work, one commit.

Who is authoritative: the database. Before COMMIT every way out rolls back and is a clear no. At COMMIT only
a clear no of the server is a no; anything else is unknown, and the row is asked later. What the block raises
always comes out as it is, whatever became of the work: it is the user's to see. It must not commit
work whose row is gone: servers roll back a whole transaction under a statement (a deadlock, a full disk), and
a program that swallows that error would go on in a second transaction without evidence; so would one that rolls back
past SQLAlchemy. `commit()` inside the block is refused before it commits anything. A COMMIT past SQLAlchemy, and DDL of
MySQL and MariaDB, commit the row before the work is complete: what follows is committed as well, and the block raises.

If the process dies before COMMIT, nothing is there; after it, everything is.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, Final
from weakref import WeakSet

from sqlalchemy import Connection, Engine, RootTransaction, Select, event, text
from sqlalchemy.exc import DBAPIError

from txsaga.errors import OutcomeUnknown, RightsMissing, TransactionClosed, TransactionError
from txsaga.evidence.driver_errors import is_forbidden, refuses_commit
from txsaga.evidence.schema import EVIDENCE
from txsaga.evidence.sessions import PLAIN

Announce = Callable[[bool], None]

_of_parents: list[object] = []
"""Kept in a forked child: what nobody holds is given back to its pool, which rolls back the parent's session."""

SAVEPOINT: Final = "txsaga_work"
"""Set behind the row: it is there as long as the transaction of the row is."""

_at_work: WeakSet[Connection] = WeakSet()
_refused: WeakSet[Connection] = WeakSet()
"""Those of them where a commit() was refused: SQLAlchemy takes their transaction for ended."""
_engines: WeakSet[Engine] = WeakSet()

IDLE: Final = 0  # libpq's numbers of a session's state
IN_ERROR: Final = 3


@contextmanager
def committing(
    transaction: RootTransaction, id: str, question: Callable[[], Select[int]], announce: Announce
) -> Iterator[None]:
    """Run a block in an open transaction and commit it; `question` selects its evidence row."""
    mark, process = mark_of(transaction.connection), os.getpid()
    refuse_commits(transaction.connection)
    with in_its_process(transaction):  # after a commit() or rollback() inside the block SQLAlchemy refuses to go on
        try:
            yield
            if os.getpid() != process:
                raise TransactionError(f"a forked child has nothing of its parent's local transaction of {id}")
            whole = _is_whole(transaction, id, question, mark)
            announce(False)
            allow_commits(transaction.connection)
        except BaseException:
            allow_commits(transaction.connection)
            if os.getpid() == process:
                _roll_back(transaction)
            raise
        _commit(transaction, id)
    announce(True)
    if not whole:
        raise TransactionClosed(
            f"the local transaction of {id} was committed before the end of its block, by a COMMIT or by DDL: what "
            "came before that is durable, and its messages follow; don't repeat it, leave the commit to the block"
        )


def mark_work(connection: Connection) -> None:
    """Mark the transaction of a row that was just written, where the server does not do that with the row."""
    if connection.dialect.name != "postgresql":
        connection.exec_driver_sql(f"savepoint {SAVEPOINT}").close()


def refuse_commits(connection: Connection) -> None:
    """Let nobody but the end of its block commit what is done on a connection; a listener on its engine refuses."""
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
            "commit() inside the block of a transaction is refused: what it was to commit was rolled back; "
            "leave the commit to the block"
        )


class in_its_process:
    """Leaves what is entered only where it was entered: a forked child would speak to the server for its parent."""

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
    """Tell whether all was done in the transaction of the row; raise where that was rolled back."""
    connection = transaction.connection
    if not transaction.is_active:
        raise _ended_by_refusal(id) if connection in _refused else _ended_inside(id)
    # PostgreSQL answers COMMIT of a failed transaction with ROLLBACK, and drivers take that for success.
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
    """Tell whether the savepoint behind the row was still there."""
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
                f"the role of the local transaction of {id} may not read {EVIDENCE}; grant it select, or leave the "
                "role again in the block"
            ) from error
        raise _rolled_back(id) from error


def _ended_by_refusal(id: str) -> TransactionError:
    return TransactionError(
        f"the local transaction of {id} was rolled back, as a commit() inside its block was refused; "
        "leave the commit to the block"
    )


def _rolled_back(id: str) -> TransactionError:
    return TransactionError(
        f"the database rolled the local transaction of {id} back inside its block; "
        "let the error that said so leave the block"
    )


def session_state(connection: Connection) -> int | None:
    """Return what libpq knows without asking the server; None for other clients."""
    info = getattr(connection.connection.driver_connection, "info", None)
    state = getattr(info, "transaction_status", None)
    return int(state) if state is not None else None


def mark_of(connection: Connection) -> str | None:
    """Return what the server last told of the mark that ends with the transaction of a row; None where it told none."""
    info = getattr(connection.connection.driver_connection, "info", None)
    told = getattr(info, "parameter_status", lambda _: None)("application_name")
    return str(told) if told and " #" in told else None


def _roll_back(transaction: RootTransaction) -> None:
    if not transaction.is_active:
        return  # the block ended it itself
    try:
        transaction.rollback()
    except DBAPIError as lost:
        transaction.connection.invalidate(lost)  # the server rolls back what lost its session


def _commit(transaction: RootTransaction, id: str) -> None:
    try:
        transaction.commit()
    except Exception as error:  # whatever it is: the server may have committed
        transaction.connection.invalidate(error)
        if isinstance(error, DBAPIError) and refuses_commit(error):
            raise
        raise OutcomeUnknown(
            f"the local transaction of {id} may or may not have committed: {' '.join(str(error).split())}"
        ) from error


def _ended_inside(id: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"the local transaction of {id} was ended inside its block; leave commit and rollback to the block"
    )
