"""
One branch in PostgreSQL, on one session from BEGIN to the end of the second phase.

    BEGIN and the branch's mark    one round trip; the mark ends with this transaction
    the user's statements
    evidence row, PREPARE          one round trip; no row if nothing was written: then it is read only
    COMMIT PREPARED                one round trip, on the same session

We send PREPARE ourselves: SQLAlchemy would roll a prepared branch back on an exception. A session that is lost before
PREPARE was sent is a no; after it the outcome is unknown, and recovery finds out: the branch may stay prepared, with
its locks, until another session finishes it.

The session is a pooled connection, used without SQLAlchemy for what it must not notice. Its user works with a
SQLAlchemy connection, or with the driver's own, which is faster. It must never open another session: the work of a lost
one is gone, and later work would be half a branch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum, auto
from functools import cache
from typing import Any, Self

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection, Dialect
from sqlalchemy.exc import DBAPIError

from txsaga import errors
from txsaga.core.decision import Decision
from txsaga.core.failure import report_failure
from txsaga.evidence import libpq
from txsaga.evidence.libpq import ServerAnswer, ServerSilent, SessionLost
from txsaga.evidence.local_transaction import refuse_commits
from txsaga.evidence.location import EvidenceTables
from txsaga.evidence.schema import EVIDENCE, EvidenceKey, database_table
from txsaga.evidence.sessions import leave_autocommit
from txsaga.evidence.statements import DURABLE
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.resources import codes

UNASKED = 5.0
"""Seconds for the answer to a ROLLBACK before the vote: the server also rolls back when the session ends."""
_AT_WORK = (TransactionStatus.ACTIVE, TransactionStatus.UNKNOWN)


class PostgresSession:
    """A session with its own transaction, and a mark that ends with that."""

    def __init__(self, connection: Connection, patience: float, handle: object) -> None:
        self._connection, self._patience, self.handle = connection, patience, handle
        driver: Any = connection.connection.driver_connection
        self._driver: psycopg.Connection[Any] | psycopg.AsyncConnection[Any] = driver
        self._read_by = driver.row_factory, driver.cursor_factory, driver.prepare_threshold
        leave_autocommit(connection)
        self._opened = connection.begin()
        refuse_commits(connection)

    def begin(self, marking: str) -> Self:
        """Begin the transaction and mark it; `SessionLost` if the pooled session was dead."""
        begun = self.state == TransactionStatus.INTRANS
        with report_failure(self._let_go):  # it is not in use yet
            answer = self.ask(marking if begun else f"{libpq.begin(self._driver)}; {marking}")
        if answer.state:
            self.give_back()
            raise errors.StoreError(f"no transaction can be begun: {answer.why}")
        return self

    @property
    def number(self) -> int:
        """The server's number of the session."""
        return self._driver.pgconn.backend_pid

    @property
    def state(self) -> int:
        """The state of the transaction as the client knows it, without a round trip: a `TransactionStatus`."""
        return self._driver.pgconn.transaction_status

    @property
    def lost(self) -> bool:
        """Whether the connection no longer has the session that it was opened with."""
        connection = self._connection
        if connection.closed or connection.invalidated:
            return True
        return connection.connection.driver_connection is not self._driver

    @property
    def gone(self) -> bool:
        """Whether it is lost, or the server closed it while it was idle."""
        return self.lost or libpq.hung_up(self._driver.pgconn)

    @property
    def in_first_transaction(self) -> bool:
        """Whether neither SQLAlchemy nor the client has seen the transaction end."""
        return self._connection.get_transaction() is self._opened and self.state == TransactionStatus.INTRANS

    def send(self, text: str) -> None:
        """Send statements."""
        self._sent = time.monotonic()
        libpq.send(self._driver.pgconn, text, self._patience)

    def receive(self, patience: float = math.inf, *, heard: bool = True) -> Sequence[ServerAnswer]:
        """Wait for the answers, at most as long as this resource allows, counted from sending."""
        return libpq.receive(self._driver.pgconn, min(patience, self._patience), since=self._sent, heard=heard)

    def ask(self, text: str) -> ServerAnswer:
        """Send statements and return the last answer; a cancelled task does not wait for it."""
        self.send(text)
        return self.receive(heard=False)[-1]

    def forget_transaction(self) -> None:
        """Close SQLAlchemy's transaction once it is over, without sending anything to the server."""
        if self._opened.is_active and self.state == TransactionStatus.IDLE:
            self._opened.close()

    def give_back(self) -> None:
        """Give it back to its pool, rolled back; close it if an answer is pending."""
        if not self.lost:
            driver: Any = self._driver
            driver.row_factory, driver.cursor_factory, driver.prepare_threshold = self._read_by
            if self.state in _AT_WORK:
                self._connection.invalidate()
        self._connection.close()

    def _let_go(self, error: BaseException) -> None:
        if isinstance(error, SessionLost):
            self._discard()
        else:
            self.give_back()

    def _discard(self) -> None:
        """Close it as stale, with every session that the pool has kept as long."""
        with suppress(DBAPIError):
            self._connection.exec_driver_sql("select 1").close()  # the pool notices only what SQLAlchemy sees
        self._connection.invalidate()
        self._connection.close()


_LIMITED = "select set_config('lock_timeout', '{longest}', true) where current_setting('lock_timeout') = '0'"
MARK = "txsaga.branch"
"""A setting that ends with the branch's transaction: in another one the statement that writes the row fails."""
ELSEWHERE = "not where the branch began: "
"""The server's error for a session that is in another transaction, or in another database."""
COMMITTED = int(Decision.COMMIT)


@cache
def texts_in(dialect: Dialect, place: EvidenceTables) -> BranchTexts:
    """Return the texts for one database."""
    return BranchTexts(dialect, place)


class BranchTexts:
    """What the branches in one database send besides their users' statements."""

    def __init__(self, dialect: Dialect, place: EvidenceTables) -> None:
        quoted = dialect.identifier_preparer
        self._into = f"insert into {quoted.format_table(place.table)} (store, incarnation, txid, branch, outcome)"
        places = quoted.format_table(database_table(place.table.schema))
        self._here = f"(select count(*) from {places} where uuid = '{place.database.hex}')"
        self._elsewhere = f"('{ELSEWHERE}' || {self._here})::int"  # the error of this cast says so

    def mark(self, branch: BranchId) -> str:
        """Build the statement that marks a transaction as a branch's."""
        return f"set local {MARK} = '{branch.gid}'"

    def row(self, branch: BranchId) -> str:
        """Build the statement for a branch's row: it inserts none if nothing was written, so that is read only."""
        store, incarnation, txid = EvidenceKey.parse(branch.transaction)
        # The row's key waits for another holder of the same name, and so may constraints that are checked at PREPARE.
        return f"""{self._into}
  select '{store}', {incarnation}, {txid}, '{branch.evidence}',
         {COMMITTED} / (select case {self._here} when 1 then 1 else {self._elsewhere} end)
   where case when current_setting('{MARK}', true) = '{branch.gid}'
              then set_config('lock_timeout', '5s', true) is not null and pg_current_xact_id_if_assigned() is not null
              else ('{ELSEWHERE}' || coalesce(current_setting('{MARK}', true), ''))::int > 0 end
  returning {DURABLE}"""

    def main(self, branch: BranchId) -> str:
        """Build the statement for the transaction's own row."""
        store, incarnation, txid = EvidenceKey.parse(branch.transaction)
        return f"""{self._into}
  values ('{store}', {incarnation}, {txid}, '', {COMMITTED} / (select case
    when {self._here} = 1 and current_setting('{MARK}', true) = '{branch.gid}' then 1 else {self._elsewhere} end))"""


class PostgresStage(Enum):
    """The stage of a branch on its session."""

    OPEN = auto()
    ASKED = auto()  # PREPARE was sent
    PREPARED = auto()
    UNKNOWN = auto()  # PREPARE was sent and the session lost
    OVER = auto()


class PostgresBranch:
    """The work of one branch."""

    def __init__(
        self, session: PostgresSession, branch: BranchId, texts: BranchTexts, elsewhere: Callable[[Decision], Finish]
    ) -> None:
        self._session = session
        self._branch = branch
        self._texts = texts
        self._elsewhere = elsewhere
        self._stage = PostgresStage.OPEN

    @property
    def handle(self) -> Any:  # SQLAlchemy's connection, or its driver's
        """What the user works with."""
        return self._session.handle

    @property
    def number(self) -> int | None:
        """The server's number of the session, while it belongs to the branch."""
        return None if self._session.lost else self._session.number

    def limit_waits(self, longest: str) -> None:
        """Let its statements wait no longer for a lock, unless the engine has a `lock_timeout` of its own."""
        try:
            self._session.ask(_LIMITED.format(longest=longest))
        except SessionLost as lost:
            raise errors.StoreUnavailable(f"the session of branch {self._branch.gid} was lost: {lost}") from lost

    def prepare(self) -> Callable[[], Vote]:
        """Send the evidence row and PREPARE; refuse a branch that is rolled back already."""
        if self._stage is not PostgresStage.OPEN:
            raise errors.ProtocolError(f"branch {self._branch.gid} was asked for its vote before")
        self._refuse_broken()
        self._stage = PostgresStage.ASKED
        self._send(f"{self._texts.row(self._branch)}; PREPARE TRANSACTION '{self._branch.gid}'")
        return self._vote

    def finish(self, decision: Decision) -> Callable[[], Finish]:
        """Send the decision; a branch that has not voted yes can only be rolled back."""
        if self._stage is PostgresStage.ASKED:
            self._hear_out()
        if self._stage is PostgresStage.PREPARED:
            return self._second_phase(decision)
        if self._stage is PostgresStage.UNKNOWN:
            raise errors.ResourceManagerFailed(f"the vote of branch {self._branch.gid} is unknown; recovery finds out")
        if decision is Decision.COMMIT:
            raise errors.ProtocolError(f"branch {self._branch.gid} did not vote yes, so it can't be committed")
        if self._stage is PostgresStage.OPEN and not self._session.gone:
            self._stage = PostgresStage.OVER
            self._send("ROLLBACK")
            return self._rolled_back
        return lambda: Finish.DONE  # the server rolls back a branch that lost its session

    def commit(self, transaction: str | None) -> Callable[[], None]:
        """Send the evidence and COMMIT; with the transaction's own row, that commit is the decision."""
        if self._stage is not PostgresStage.OPEN:
            raise errors.ProtocolError(f"branch {self._branch.gid} was asked for its vote before")
        self._refuse_broken()
        self._stage = PostgresStage.UNKNOWN
        main = [self._texts.main(self._branch)] if transaction else []
        try:
            self._session.send("; ".join([*main, self._texts.row(self._branch), "COMMIT"]))
        except SessionLost as lost:
            raise self._unknown(lost) from lost
        return self._committed

    def leave(self) -> None:
        """Give the session back."""
        self._session.give_back()

    def _refuse_broken(self) -> None:
        gid, session = self._branch.gid, self._session
        if session.gone:
            raise errors.CommunicationFailed(
                f"the session of branch {gid} was lost or closed before its vote: its uncommitted work is rolled back"
            )
        if session.state == TransactionStatus.INERROR:
            raise errors.RolledBack(
                f"a statement of branch {gid} failed and its error was dropped, so the database rolls all of "
                "it back; let the error leave the step, or run the statement in begin_nested()"
            )
        if session.state == TransactionStatus.ACTIVE:
            raise errors.RolledBack(
                f"a statement of branch {gid} is still under way; wait for it before the block ends"
            )
        if not session.in_first_transaction:
            raise _ended_inside(self._branch)

    def _committed(self) -> None:
        try:
            answer = self._session.receive()[-1]
        except SessionLost as lost:
            raise self._unknown(lost) from lost
        if answer.state and self._session.state == TransactionStatus.INERROR:
            self._send("ROLLBACK")
            self._receive()
        self._session.forget_transaction()
        self._stage = PostgresStage.OVER
        if answer.state == codes.DUPLICATE_KEY and answer.table == EVIDENCE:
            raise errors.DecidedOtherwise(int(self._branch.transaction.rpartition("-")[2], 16), Decision.ROLLBACK.name)
        if ELSEWHERE in answer.why:
            raise _ended_inside(self._branch)
        if answer.state:
            raise codes.of_state(answer.state)(f"branch {self._branch.gid} can't commit: {answer.why}")
        if answer.tag != "COMMIT":  # a failed transaction answers like this, without an error
            raise errors.RolledBack(f"branch {self._branch.gid} was rolled back instead of committed: {answer.tag}")

    def _unknown(self, lost: SessionLost) -> errors.OutcomeUnknown:
        return errors.OutcomeUnknown(f"it is unknown whether branch {self._branch.gid} was committed: {lost}")

    def _vote(self) -> Vote:
        """Wait for the answer to PREPARE."""
        self._stage = PostgresStage.UNKNOWN
        try:
            answers = self._session.receive()
        except SessionLost as lost:
            raise self._lost(lost) from lost
        self._stage = PostgresStage.OVER
        refuse_no(answers[-1], self._branch)
        self._stage = PostgresStage.PREPARED
        if answers[-2].tag == "INSERT 0 0":
            self._let_go()
            return Vote.READ_ONLY
        return Vote.PREPARED

    def _let_go(self) -> None:
        """Finish a branch that holds nothing."""
        self._send(self._ending(Decision.COMMIT))
        answer = self._receive()[-1]
        if answer.state:
            raise errors.ResourceManagerFailed(f"branch {self._branch.gid} can't be ended: {answer.why}")
        self._stage = PostgresStage.OVER

    def _hear_out(self) -> None:
        """Receive an answer to PREPARE that no caller waited for."""
        with suppress(errors.VotedNo, errors.DuplicateBranch):
            self._vote()

    def _second_phase(self, decision: Decision) -> Callable[[], Finish]:
        if self._session.lost or self._session.state != TransactionStatus.IDLE:  # the handle was used after the vote
            return lambda: self._from_elsewhere(decision)
        try:
            self._session.send(self._ending(decision))
        except ServerSilent as lost:
            raise self._lost(lost) from lost
        except SessionLost:  # it was cut while idle
            return lambda: self._from_elsewhere(decision)
        return lambda: self._finished(decision)

    def _finished(self, decision: Decision) -> Finish:
        try:
            answer = self._session.receive()[-1]
        except ServerSilent as lost:
            raise self._lost(lost) from lost
        except SessionLost:
            return self._from_elsewhere(decision)
        if answer.state:  # another session finished it, or is about to
            return self._from_elsewhere(decision)
        self._stage = PostgresStage.OVER
        return Finish.DONE

    def _from_elsewhere(self, decision: Decision) -> Finish:
        self._session.give_back()  # the pool may have no other session
        found = self._elsewhere(decision)
        self._stage = PostgresStage.OVER
        return found

    def _rolled_back(self) -> Finish:
        self._receive(UNASKED)
        self._session.forget_transaction()
        return Finish.DONE

    def _ending(self, decision: Decision) -> str:
        return f"{decision.name} PREPARED '{self._branch.gid}'"

    def _send(self, text: str) -> None:
        try:
            self._session.send(text)
        except SessionLost as lost:
            raise self._lost(lost) from lost

    def _receive(self, patience: float = math.inf) -> Sequence[ServerAnswer]:
        try:
            return self._session.receive(patience)
        except SessionLost as lost:
            raise self._lost(lost) from lost

    def _lost(self, lost: SessionLost) -> errors.ResourceManagerFailed:
        if self._stage is PostgresStage.ASKED:
            self._stage = PostgresStage.UNKNOWN
        return errors.ResourceManagerFailed(
            f"the session of branch {self._branch.gid} was lost while it was asked: {lost}"
        )


_OF_OURS = {
    "25006": ": its evidence is written at its vote; leave READ ONLY out",
    "42501": ": its evidence is written at its vote; leave SET ROLE out, or grant the right",
}
"""What to do if our own statement was refused, by its SQLSTATE."""


def refuse_no(answer: ServerAnswer, branch: BranchId) -> None:
    """Raise the error for an answer to PREPARE, unless it is a yes."""
    if answer.state == codes.DUPLICATE_KEY and answer.table == EVIDENCE:
        raise errors.DuplicateBranch(f"branch {branch.gid} has its evidence already: {answer.why}")
    if ELSEWHERE in answer.why:
        raise _ended_inside(branch)
    if answer.state:
        why = _OF_OURS.get(answer.state, "")
        raise codes.of_state(answer.state)(f"branch {branch.gid} votes no: {answer.why}{why}")
    if answer.tag != "PREPARE TRANSACTION":  # a failed transaction answers like this, without an error
        raise errors.RolledBack(f"branch {branch.gid} was rolled back instead of prepared: {answer.tag}")


def _ended_inside(branch: BranchId) -> errors.RolledBack:
    """Return the error for a session that is no longer where its branch began."""
    return errors.RolledBack(
        f"branch {branch.gid} is not where it began: its transaction was committed or rolled back inside the step, or "
        "its session points to another database; work that a COMMIT included is durable, so check before you repeat "
        "it; leave COMMIT and ROLLBACK to the coordinator"
    )
