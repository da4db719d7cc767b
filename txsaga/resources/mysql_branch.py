"""
One branch in MariaDB or MySQL, on one session from XA START to the end of the second phase.

    XA START, evidence row    before the user's work: anything that ends the branch ends its row
    the user's statements, or its journal's
    XA END, XA PREPARE        in a thread of its own: the driver can only send and wait in one call
    XA COMMIT                 likewise, on the same session

The server itself refuses COMMIT, ROLLBACK and implicit commits while the branch is open; a branch that it rolled back,
as after a deadlock, refuses XA END. Nothing is decided here. If the session is lost before XA PREPARE was sent, that is
a no; after it the outcome is unknown, and recovery finds out. If it is cut after the vote, another session finishes the
branch. No other can while the session lives, so one that is left after its vote is closed. If no line after XA PREPARE
runs, the branch stays prepared.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswer
from contextlib import suppress
from enum import Enum, auto
from socket import SHUT_RDWR
from typing import Any, TypeVar

from sqlalchemy import Connection

from txsaga.core.decision import Decision
from txsaga.errors import (
    CommunicationFailed,
    OutcomeUnknown,
    ProtocolError,
    ResourceManagerFailed,
    RetryLater,
    RolledBack,
    XaError,
)
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.resources import codes
from txsaga.resources.two_phase import started


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
        errors = dialect.loaded_dbapi.Error
        try:
            with self._driver.cursor() as cursor:
                cursor.execute(statement)
        except errors as error:
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
            raise ProtocolError(f"branch {self._branch.gid} was asked for its vote before")
        self._refuse_broken()
        self._last = self._vote = vote = self._started(self._ask)
        return lambda: self._waited(vote)

    def finish(self, decision: Decision) -> Callable[[], Finish]:
        """Start to carry out the decision; a branch that has not voted yes can only be rolled back."""
        if decision is Decision.COMMIT and self._stage is not MysqlStage.PREPARED:
            raise ProtocolError(f"branch {self._branch.gid} did not vote yes, so it can't be committed")
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
            raise RolledBack(
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
            raise OutcomeUnknown(f"it is unknown whether branch {self._branch.gid} was committed: {lost}") from lost
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
                raise ResourceManagerFailed(f"the vote of branch {self._branch.gid} is unknown; recovery finds out")
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
            except RetryLater:
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

    def _no(self, refused: Refused) -> XaError:
        return codes.of_number(refused.number)(f"branch {self._branch.gid} votes no: {refused}")

    def _lost_early(self) -> CommunicationFailed:
        return CommunicationFailed(
            f"the session of branch {self._branch.gid} was lost before its vote: it is rolled back"
        )

    def _lost_while_asked(self, why: object) -> ResourceManagerFailed:
        return ResourceManagerFailed(f"the session of branch {self._branch.gid} was lost while it was asked: {why}")
