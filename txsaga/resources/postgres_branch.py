"""
One branch in PostgreSQL, on one session from BEGIN to the end of the second phase.

    BEGIN and the branch's mark    one round trip; the mark ends with this transaction
    the user's statements
    evidence row, PREPARE          one round trip; no row if nothing was written: then it is read only
    COMMIT PREPARED                one round trip, on the same session

We send PREPARE ourselves: SQLAlchemy would roll a prepared branch back on an exception. Nothing is decided here. If the
session is lost before PREPARE was sent, that is a no; after it the outcome is unknown, and recovery finds out. If any
line after PREPARE never runs, the branch stays prepared, with its locks, until another session finishes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import Any

from psycopg.pq import TransactionStatus

from txsaga.core.decision import Decision
from txsaga.errors import (
    CommunicationFailed,
    DecidedOtherwise,
    DuplicateBranch,
    OutcomeUnknown,
    ProtocolError,
    ResourceManagerFailed,
    RolledBack,
    StoreUnavailable,
    VotedNo,
)
from txsaga.evidence import libpq
from txsaga.evidence.libpq import ServerAnswer, ServerSilent, SessionLost
from txsaga.evidence.schema import EVIDENCE
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.resources import codes
from txsaga.resources.postgres_session import UNASKED, PostgresSession
from txsaga.resources.postgres_texts import ELSEWHERE, Texts

_LIMITED = "select set_config('lock_timeout', '{longest}', true) where current_setting('lock_timeout') = '0'"
_BEFORE = "txsaga_before"
"""A savepoint to roll back to if the server no longer has our prepared statements."""


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
        self,
        session: PostgresSession,
        branch: BranchId,
        texts: Texts,
        elsewhere: Callable[[Decision], Finish],
    ) -> None:
        self._session = session
        self._branch = branch
        self._texts = texts
        self._elsewhere = elsewhere
        self._stage = PostgresStage.OPEN
        self._main: Sequence[str] = ()  # the transaction's own row, if this commit is the decision
        self._word = "COMMIT"  # the last statement it sends

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
            raise StoreUnavailable(f"the session of branch {self._branch.gid} was lost: {lost}") from lost

    def prepare(self) -> Callable[[], Vote]:
        """Send the evidence row and PREPARE; refuse a branch that is rolled back already."""
        if self._stage is not PostgresStage.OPEN:
            raise ProtocolError(f"branch {self._branch.gid} was asked for its vote before")
        self._refuse_broken()
        self._stage = PostgresStage.ASKED
        self._word = f"PREPARE TRANSACTION '{self._branch.gid}'"
        self._send(self._ended())
        return self._vote

    def finish(self, decision: Decision) -> Callable[[], Finish]:
        """Send the decision; a branch that has not voted yes can only be rolled back."""
        if self._stage is PostgresStage.ASKED:
            self._hear_out()
        if self._stage is PostgresStage.PREPARED:
            return self._second_phase(decision)
        if self._stage is PostgresStage.UNKNOWN:
            raise ResourceManagerFailed(f"nobody knows how branch {self._branch.gid} voted; recovery finds out")
        if decision is Decision.COMMIT:
            raise ProtocolError(f"branch {self._branch.gid} holds no yes that could be committed")
        if self._stage is PostgresStage.OPEN and not self._session.gone:
            self._stage = PostgresStage.OVER
            self._send("ROLLBACK")
            return self._rolled_back
        return lambda: Finish.DONE  # the server rolls back a branch that lost its session

    def commit(self, transaction: str | None) -> Callable[[], None]:
        """Send the evidence and COMMIT; with the transaction's own row, that commit is the decision."""
        if self._stage is not PostgresStage.OPEN:
            raise ProtocolError(f"branch {self._branch.gid} was asked for its vote before")
        self._refuse_broken()
        self._stage = PostgresStage.UNKNOWN
        try:
            self._main = [self._texts.main(self._branch)] if transaction else []
            self._session.send(self._ended())
        except SessionLost as lost:
            raise self._unknown(lost) from lost
        return self._committed

    def leave(self) -> None:
        """Give the session back."""
        self._session.give_back()

    def _ended(self) -> str:
        """Build the statements that end the work; only the server knows if our prepared statements were dropped."""
        prepared = self._session.prepared
        kept = [f"SAVEPOINT {_BEFORE}"] if prepared else []
        return "; ".join([*kept, *self._main, self._texts.row(self._branch, prepared=prepared), self._word])

    def _heard(self) -> Sequence[ServerAnswer]:
        """Wait for the answers; if our prepared statements were dropped, send plain text instead."""
        session = self._session
        answers = session.receive()
        if answers[-1].state != libpq.UNPREPARED or session.state != TransactionStatus.INERROR:
            return answers
        session.lose_statements()
        session.send(f"ROLLBACK TO SAVEPOINT {_BEFORE}; {self._ended()}")
        return session.receive()

    def _refuse_broken(self) -> None:
        gid, session = self._branch.gid, self._session
        if session.gone:
            raise CommunicationFailed(
                f"the session of branch {gid} was lost or closed before its vote: what was not committed in it is "
                "rolled back"
            )
        if session.state == TransactionStatus.INERROR:
            raise RolledBack(
                f"a statement of branch {gid} failed and its error was dropped, so the database rolls all of it back; "
                "let the error leave the step, or fence the statement off with begin_nested()"
            )
        if session.state == TransactionStatus.ACTIVE:
            raise RolledBack(f"a statement of branch {gid} is still under way; wait for it before the block ends")
        if not session.in_first_transaction:
            raise _ended_inside(self._branch)

    def _committed(self) -> None:
        try:
            answer = self._heard()[-1]
        except SessionLost as lost:
            raise self._unknown(lost) from lost
        if answer.state and self._session.state == TransactionStatus.INERROR:
            self._send("ROLLBACK")
            self._receive()
        self._session.forget_transaction()
        self._stage = PostgresStage.OVER
        if answer.state == codes.DUPLICATE_KEY and answer.table == EVIDENCE:
            raise DecidedOtherwise(int(self._branch.transaction.rpartition("-")[2], 16), Decision.ROLLBACK.name)
        if ELSEWHERE in answer.why:
            raise _ended_inside(self._branch)
        if answer.state:
            raise codes.of_state(answer.state)(f"branch {self._branch.gid} can't commit: {answer.why}")
        if answer.tag != "COMMIT":  # a failed transaction answers like this, without an error
            raise RolledBack(f"branch {self._branch.gid} was rolled back instead of committed: {answer.tag}")

    def _unknown(self, lost: SessionLost) -> OutcomeUnknown:
        return OutcomeUnknown(f"whether branch {self._branch.gid} has committed is not known: {lost}")

    def _vote(self) -> Vote:
        """Wait for the answer to PREPARE."""
        self._stage = PostgresStage.UNKNOWN
        try:
            answers = self._heard()
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
            raise ResourceManagerFailed(f"branch {self._branch.gid} can't be ended: {answer.why}")
        self._stage = PostgresStage.OVER

    def _hear_out(self) -> None:
        """Receive an answer to PREPARE that no caller waited for."""
        with suppress(VotedNo, DuplicateBranch):
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

    def _lost(self, lost: SessionLost) -> ResourceManagerFailed:
        if self._stage is PostgresStage.ASKED:
            self._stage = PostgresStage.UNKNOWN
        return ResourceManagerFailed(f"the session of branch {self._branch.gid} was lost while it was asked: {lost}")


_OF_OURS = {
    "25006": ": its evidence is written at its vote; leave READ ONLY out",
    "42501": ": its evidence is written at its vote; leave SET ROLE out, or grant the right",
}
"""What to do if our own statement was refused, by its SQLSTATE."""


def refuse_no(answer: ServerAnswer, branch: BranchId) -> None:
    """Raise the error for an answer to PREPARE, unless it is a yes."""
    if answer.state == codes.DUPLICATE_KEY and answer.table == EVIDENCE:
        raise DuplicateBranch(f"branch {branch.gid} has its evidence already: {answer.why}")
    if ELSEWHERE in answer.why:
        raise _ended_inside(branch)
    if answer.state:
        why = _OF_OURS.get(answer.state, "")
        raise codes.of_state(answer.state)(f"branch {branch.gid} votes no: {answer.why}{why}")
    if answer.tag != "PREPARE TRANSACTION":  # a failed transaction answers like this, without an error
        raise RolledBack(f"branch {branch.gid} was rolled back instead of prepared: {answer.tag}")


def _ended_inside(branch: BranchId) -> RolledBack:
    """Return the error for a session that is no longer where its branch began."""
    return RolledBack(
        f"branch {branch.gid} is not where it began: its transaction was committed or rolled back inside the step, "
        "or its session leads to another database; what a COMMIT took along is durable, so look before it is done "
        "again; leave both to the coordinator"
    )
