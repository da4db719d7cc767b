"""
MariaDB and MySQL as participants, through the user's own SQLAlchemy engine; one branch is on one session to its end.

    XA START, evidence row    before the user's work: anything that ends the branch ends its row
    the user's statements, or its journal's
    XA END, XA PREPARE        in a thread of its own: the driver can only send and wait in one call
    XA COMMIT                 likewise, on the same session

The server itself refuses COMMIT, ROLLBACK and implicit commits while the branch is open; a branch that it rolled back,
as after a deadlock, refuses XA END. If the session is lost before XA PREPARE was sent, that is a no; after it the
outcome is unknown, and recovery finds out. If it is cut after the vote, another session finishes the branch. No other
can while the session lives, so one that is left after its vote is closed.

A server lists the prepared branches of all its databases, so a branch's XA name carries the uuid of its database:
branches of another database on the same server are neither listed nor touched here, even of the same transaction. If
the server lists a name but calls it unknown, its session still lives: it is retried later. An unknown name that is not
listed has been finished, and its row shows how; the row is read after the list, never before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswer
from contextlib import suppress
from enum import Enum, auto
from socket import SHUT_RDWR
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Connection, event
from sqlalchemy.exc import DBAPIError, IntegrityError

from txsaga import errors
from txsaga.core.decision import Decision
from txsaga.evidence.driver_errors import code_of, edge, reached
from txsaga.evidence.sessions import commit_each, connection_of, short_waits
from txsaga.flows.branch import PREFIX, BranchId, Finish, Vote
from txsaga.resources import codes
from txsaga.resources.capabilities import CAPABILITIES, Capabilities, ResourceKind
from txsaga.resources.database import DatabaseParticipant
from txsaga.resources.participant import ours
from txsaga.resources.two_phase import started
from txsaga.resources.waits import MysqlLockView, is_cancelled, transaction_number

if TYPE_CHECKING:
    from txsaga.flows.journal import Journalled
    from txsaga.resources.participant import EnlistedBranch, Opens


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, number: object, why: str) -> None:
        super().__init__(why)
        self.number = number


class MysqlSessionLost(Exception):
    """The session ended: the outcome of what was sent is unknown."""


class MysqlSession:
    """The one session of a branch: a pooled SQLAlchemy connection, used through its driver.

    While its branch is open or prepared the server refuses COMMIT and ROLLBACK, so it may return to its pool only when
    the branch is over; before that it is closed. It must never open another session for a branch.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        driver: Any = connection.connection.driver_connection
        self._driver: Any = driver
        self.number: int = driver.thread_id()  # a driver that reconnects changes only this
        self._opened = connection.get_transaction()

    @property
    def lost(self) -> bool:
        """Whether the connection no longer has the session that it was opened with."""
        driver: Any = self._driver
        return not self._is_held or not driver.open or driver.thread_id() != self.number

    @property
    def _is_held(self) -> bool:
        """Whether SQLAlchemy still holds the driver's connection that it was opened with."""
        connection = self.connection
        if connection.closed or connection.invalidated:
            return False
        return connection.connection.driver_connection is self._driver

    @property
    def in_first_transaction(self) -> bool:
        """Whether its transaction was never ended through SQLAlchemy."""
        opened = self._opened
        return opened is not None and opened.is_active and self.connection.get_transaction() is opened

    def run(self, statement: str) -> None:
        """Run a statement that returns nothing."""
        dialect = self.connection.dialect
        refusal = dialect.loaded_dbapi.Error
        try:
            with self._driver.cursor() as cursor:
                cursor.execute(statement)
        except refusal as error:
            why = " ".join(str(error).split())
            if not self._driver.open or dialect.is_disconnect(error, self._driver, None):
                raise MysqlSessionLost(why) from error
            raise Refused(error.args[0] if error.args else None, why) from error

    def cut(self) -> None:
        """Shut down a silent connection: the waiting thread notices, and so does the server with its locks."""
        line = getattr(self._driver, "_sock", None)  # private: the driver offers no way to break off a silent session
        if line is not None:
            with suppress(OSError):
                line.shutdown(SHUT_RDWR)

    def give_back(self) -> None:
        """Give it back to its pool."""
        self.connection.close()

    def end(self) -> None:
        """Close it: prepared work stays prepared, for others to finish; the rest is rolled back."""
        if self._is_held:
            self.connection.invalidate()
        self.connection.close()


Answer = TypeVar("Answer")

LEAST = 0.05
"""Minimum seconds to wait for an answer: the thread that reads it may not have run yet."""
LETS_GO, LOOK = 1.0, 0.02
"""Seconds in which a server notices that a session is gone, and between two attempts."""


class MysqlStage(Enum):
    """The stage of a branch."""

    OPEN = auto()
    NO = auto()  # its vote was no, and it has yet to be rolled back
    PREPARED = auto()
    UNKNOWN = auto()  # XA PREPARE was sent, and its answer is unknown
    LOST = auto()  # with its session, before XA PREPARE
    OVER = auto()


class MysqlBranch:
    """The work of one branch."""

    def __init__(
        self,
        session: MysqlSession,
        branch: BranchId,
        xid: str,
        main: Callable[[], None],
        elsewhere: Callable[[Decision], Finish],
        patience: float,
    ) -> None:
        self._session = session
        self._branch = branch
        self._xid = xid
        self._main = main  # writes the transaction's own evidence
        self._elsewhere = elsewhere
        self._patience = patience
        self._stage, self._fell_silent = MysqlStage.OPEN, False
        self._vote: Future[Vote] | None = None
        self._last: Future[Vote] | Future[Finish] | Future[None] | None = None

    @property
    def handle(self) -> Connection:
        """What the user works with."""
        return self._session.connection

    @property
    def number(self) -> int | None:
        """The server's number of the session, while it belongs to the branch."""
        return None if self._session.lost else self._session.number

    def prepare(self) -> Callable[[], Vote]:
        """Start to ask for the vote; refuse a branch whose session was lost or whose transaction was ended."""
        if self._vote is not None:
            raise errors.ProtocolError(f"branch {self._branch.gid} was asked for its vote before")
        self._refuse_broken()
        self._last = self._vote = vote = self._started(self._ask)
        return lambda: self._waited(vote)

    def finish(self, decision: Decision) -> Callable[[], Finish]:
        """Start to carry out the decision; a branch that has not voted yes can only be rolled back."""
        if decision is Decision.COMMIT and self._stage is not MysqlStage.PREPARED:
            raise errors.ProtocolError(f"branch {self._branch.gid} did not vote yes, so it can't be committed")
        self._last = end = self._started(lambda: self._end(decision))
        return lambda: self._waited(end)

    def commit(self, transaction: str | None) -> Callable[[], None]:
        """Start to commit in one phase; with the transaction's own row, that commit is the decision."""
        self._refuse_broken()
        self._last = end = self._started(lambda: self._one_phase(decides=transaction is not None))
        return lambda: self._waited(end)

    def leave(self) -> None:
        """Give the session back if the branch is over, else close it; if an answer is pending, once it is there."""
        if self._last is not None and not self._last.done():
            self._last.add_done_callback(lambda _: self._left())
        else:
            self._left()

    def _refuse_broken(self) -> None:
        if self._session.lost:
            self._stage = MysqlStage.LOST
            raise self._lost_early()
        if not self._session.in_first_transaction:
            self._stage = MysqlStage.NO
            raise errors.RolledBack(
                f"the step tried to commit or roll back the transaction of branch {self._branch.gid} itself; "
                "leave COMMIT and ROLLBACK to the coordinator"
            )

    def _ask(self) -> Vote:
        try:
            self._end_with(f"XA PREPARE {self._xid}")
        except MysqlSessionLost as lost:
            raise self._lost_while_asked(lost) from lost
        self._stage = MysqlStage.PREPARED
        return Vote.PREPARED

    def _one_phase(self, *, decides: bool) -> None:
        try:
            self._end_with(f"XA COMMIT {self._xid} ONE PHASE", self._main if decides else None)
        except MysqlSessionLost as lost:
            raise errors.OutcomeUnknown(
                f"it is unknown whether branch {self._branch.gid} was committed: {lost}"
            ) from lost
        self._stage = MysqlStage.OVER

    def _end_with(self, last: str, main: Callable[[], None] | None = None) -> None:
        """End the work and run its last statement; if the session is lost during that, the outcome is unknown."""
        self._stage = MysqlStage.NO
        try:
            if main is not None:
                main()
            self._session.run(f"XA END {self._xid}")
        except MysqlSessionLost as lost:
            self._stage = MysqlStage.LOST
            raise self._lost_early() from lost
        except Refused as refused:
            raise self._no(refused) from refused
        try:
            self._stage = MysqlStage.UNKNOWN
            self._session.run(last)
        except Refused as refused:
            self._stage = MysqlStage.NO
            raise self._no(refused) from refused

    def _end(self, decision: Decision) -> Finish:
        if self._vote is not None:
            self._vote.exception()  # two threads must not use one session
        match self._stage:
            case MysqlStage.PREPARED:
                return self._second_phase(decision)
            case MysqlStage.UNKNOWN:
                raise errors.ResourceManagerFailed(
                    f"the vote of branch {self._branch.gid} is unknown; recovery finds out"
                )
            case MysqlStage.OPEN | MysqlStage.NO if not self._session.lost:
                return self._roll_back()
        return Finish.DONE  # the server rolls back a branch that lost its session

    def _second_phase(self, decision: Decision) -> Finish:
        if self._session.lost:
            return self._from_elsewhere(decision)
        try:
            self._session.run(f"XA {decision.name} {self._xid}")
        except MysqlSessionLost as lost:
            if self._fell_silent:  # the server may still be working on it
                raise self._lost_while_asked(lost) from lost
            return self._from_elsewhere(decision)
        except Refused:  # another session finished it, or is about to
            return self._from_elsewhere(decision)
        self._stage = MysqlStage.OVER
        return Finish.DONE

    def _roll_back(self) -> Finish:
        if self._stage is MysqlStage.OPEN:
            self._tried(f"XA END {self._xid}")
        if not self._tried(f"XA ROLLBACK {self._xid}"):
            return self._from_elsewhere(Decision.ROLLBACK)  # the step may have ended it by itself
        self._stage = MysqlStage.OVER
        return Finish.DONE

    def _tried(self, statement: str) -> bool:
        try:
            self._session.run(statement)
        except (Refused, MysqlSessionLost):
            return False
        return True

    def _from_elsewhere(self, decision: Decision) -> Finish:
        self._session.end()  # while it lives no other session can
        until = time.monotonic() + LETS_GO
        while True:
            try:
                return self._elsewhere(decision)
            except errors.RetryLater:
                if time.monotonic() > until:
                    raise
            time.sleep(LOOK)

    def _started(self, work: Callable[[], Answer]) -> Future[Answer]:
        self._asked = time.monotonic()
        return started(work)

    def _waited(self, answer: Future[Answer]) -> Answer:
        try:
            return answer.result(max(LEAST, self._asked + self._patience - time.monotonic()))
        except NoAnswer:
            self._fell_silent = True
            self._session.cut()
            raise self._lost_while_asked(f"no answer for {self._patience:g} s") from None

    def _left(self) -> None:
        if self._stage is MysqlStage.OVER:
            self._session.give_back()
        else:
            self._session.end()

    def _no(self, refused: Refused) -> errors.XaError:
        return codes.of_number(refused.number)(f"branch {self._branch.gid} votes no: {refused}")

    def _lost_early(self) -> errors.CommunicationFailed:
        return errors.CommunicationFailed(
            f"the session of branch {self._branch.gid} was lost before its vote: it is rolled back"
        )

    def _lost_while_asked(self, why: object) -> errors.ResourceManagerFailed:
        return errors.ResourceManagerFailed(
            f"the session of branch {self._branch.gid} was lost while it was asked: {why}"
        )


FORMAT = 0x54585347  # "TXSG"

_ABLE = "select @@global.read_only, @@global.innodb_flush_log_at_trx_commit"
_FORGETFUL = (0, 2)  # the log reaches the disk some time after the answer


class MysqlParticipant(DatabaseParticipant):
    """One registered database."""

    driver = ("pymysql", "mysql+pymysql")
    is_cancelled = staticmethod(is_cancelled)

    @property
    def capabilities(self) -> Capabilities:
        """What its kind can do; the first connection shows which of the two it is."""
        maria = self._engine.dialect.name == "mariadb" or getattr(self._engine.dialect, "is_mariadb", False)
        return CAPABILITIES[ResourceKind.MARIADB if maria else ResourceKind.MYSQL]

    def probe(self) -> None:
        """Raise `ConfigError` unless branches can be listed and written; write nothing."""
        with reached(self.name, self._engine) as connection:
            try:
                connection.exec_driver_sql("XA RECOVER").close()
            except DBAPIError as error:
                raise errors.ConfigError(
                    f"resource {self.name!r} can't vote: its user may not list prepared branches; "
                    f"on MySQL grant XA_RECOVER_ADMIN to it ({error.orig})"
                ) from error
            reads_only, flush = connection.exec_driver_sql(_ABLE).one()
        if reads_only:
            raise errors.ConfigError(
                f"resource {self.name!r} is read only or a replica; connect to the writable primary"
            )
        if flush in _FORGETFUL:
            raise errors.ConfigError(
                f"resource {self.name!r} can't vote: a crash of its server would lose a yes; "
                "set innodb_flush_log_at_trx_commit = 1 there"
            )
        self._require_tables()

    def enlist(self, branch: BranchId) -> MysqlBranch:
        """Open a branch; a stale pooled session is replaced before it begins."""
        session = self._opened(branch)
        return MysqlBranch(
            session,
            branch,
            self._xid(branch),
            lambda: self._rows.write_main(session.connection, branch),
            lambda decision: self.finish(branch, decision),
            self._patience,
        )

    def _opened(self, branch: BranchId) -> MysqlSession:
        xid = self._xid(branch)
        with edge(self.name):
            session = self._begun(xid) or self._begun(xid, last=True)
            assert session is not None
            try:
                self._rows.write(session.connection, branch)
            except errors.EvidenceMissing:
                session.end()
                raise
            except IntegrityError as error:
                session.end()
                raise errors.DuplicateBranch(f"branch {branch.gid} has its evidence already") from error
            except DBAPIError:
                session.end()
                raise
            return session

    def in_loop(self) -> Opens:
        """Refuse: the driver for threads blocks on what it sends, and there is no code for an asynchronous one."""
        self._engine_of_loops()
        raise AssertionError

    def finish(self, branch: BranchId, decision: Decision) -> Finish:
        """Carry out the decision, or find out how the branch was finished."""
        with self._reached() as connection:
            commit_each(connection)
            with short_waits(connection):
                return self._finished(connection, branch, decision, lambda due: self._end(connection, branch, due))

    def prepared(self, store: str) -> Sequence[BranchId]:
        """Return the branches that this database holds for a store."""
        place = self._rows.place
        with self._reached() as connection:
            self._rows.where.require_same(connection, place)
            return [branch for branch in self._listed(connection) if branch.store == store]

    def do(self, session: EnlistedBranch, statements: Sequence[Journalled]) -> None:
        """Execute journalled statements in an open branch."""
        connection = connection_of(session.handle)
        event.listen(connection, "after_cursor_execute", self._refuse_hidden)
        try:
            super().do(session, statements)
        finally:
            event.remove(connection, "after_cursor_execute", self._refuse_hidden)

    def _refuse_hidden(self, _: Connection, cursor: Any, *__: object) -> None:
        """Refuse what a driver that sends several statements at once did besides the one that counts its rows."""
        if cursor.nextset():
            raise errors.OtherReason(f"a journal statement for {self.name!r} contains several statements")

    def mark(self, session: EnlistedBranch) -> str:
        """Return the number of the transaction: the server lists lock waits by these, not by branches."""
        return transaction_number(connection_of(session.handle))

    def look(self) -> MysqlLockView:
        """Open a view of the lock waits."""
        return MysqlLockView(self._engine, self.name)

    def _begun(self, xid: str, *, last: bool = False) -> MysqlSession | None:
        """Begin a branch; None if the pooled session was dead, which the pool now knows."""
        connection = self._engine.connect()
        try:
            connection.begin()
            try:
                connection.exec_driver_sql(f"XA START {xid}").close()
            except DBAPIError as error:
                if code_of(error) != codes.OUTSIDE:
                    raise
                connection.rollback()  # an earlier use of the connection left a transaction open
                connection.begin()
                connection.exec_driver_sql(f"XA START {xid}").close()
        except DBAPIError as error:
            connection.close()
            if error.connection_invalidated and not last:
                return None
            if not error.connection_invalidated and code_of(error) == codes.DUPLICATE_XID:
                raise errors.DuplicateBranch(f"branch {xid} exists already") from error
            raise
        return MysqlSession(connection)

    def _end(self, connection: Connection, branch: BranchId, decision: Decision) -> bool:
        """Finish the prepared branch of a name; return whether there was one."""
        try:
            connection.exec_driver_sql(f"XA {decision.name} {self._xid(branch)}").close()
        except DBAPIError as error:
            number = code_of(error)
            if number in codes.ROLLED_BACK_BY_SERVER:
                return False
            if number != codes.UNKNOWN_XID:
                raise
            if branch in self._listed(connection):
                raise errors.RetryLater(f"the session that prepared branch {branch.gid} still holds it") from error
            return False
        return True

    def _listed(self, connection: Connection) -> Sequence[BranchId]:
        own = f"@{self.database.hex}"
        found: list[BranchId] = []
        for form, length, _, data in connection.exec_driver_sql("XA RECOVER"):
            name = data.decode(errors="replace") if isinstance(data, bytes) else str(data)
            if form == FORMAT and name.endswith(own):
                found += ours(f"{PREFIX}:{name[:length]}:{name[length:].removesuffix(own)}")
        return found

    def _xid(self, branch: BranchId) -> str:
        return f"'{branch.transaction}','{branch.qualifier}@{self.database.hex}',{FORMAT}"
