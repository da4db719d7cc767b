"""
One branch in PostgreSQL, on one session from BEGIN to the end of the second phase.

    BEGIN and the branch's mark    one round trip; the mark ends with this very transaction
    whatever the user writes
    evidence row, PREPARE          one round trip; no row where nothing was written: then it is read only
    COMMIT PREPARED                one round trip, on the same session

The mark tells the branch's transaction from one that was opened after a commit of the user's. PREPARE is our own:
SQLAlchemy would roll a prepared branch back on the way out of an exception. It must not decide anything. A session
that is lost before PREPARE was sent is a no; after it nobody knows, and recovery finds out. If any line after PREPARE
never runs, the branch stays prepared, with its locks, until it is finished from elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto

from psycopg.pq import TransactionStatus
from sqlalchemy import Connection

from txsaga.adapters.evidence.schema import EVIDENCE
from txsaga.adapters.xa import codes
from txsaga.adapters.xa.libpq import Answer, SessionLost
from txsaga.adapters.xa.postgres_session import Session
from txsaga.errors import DecidedOtherwise, OutcomeUnknown, xa
from txsaga.model.branch import BranchId, Finish, Vote
from txsaga.model.decision import Decision

MARK = "txsaga.branch"
ELSEWHERE = "not where the branch began: "
"""What the server says of a session that is in another transaction, or in another database."""


class _Stage(Enum):
    OPEN = auto()
    ASKED = auto()  # PREPARE was sent
    PREPARED = auto()
    UNKNOWN = auto()  # PREPARE was sent and the session lost
    OVER = auto()


class PostgresBranch:
    """The work of one branch."""

    def __init__(
        self,
        session: Session,
        branch: BranchId,
        evidence: tuple[str, str],
        elsewhere: Callable[[Decision], Finish],
    ) -> None:
        self._session = session
        self._branch = branch
        # What writes the branch's row and tells whose transaction this is; what writes the transaction's own.
        self._evidence, self._main = evidence
        self._elsewhere = elsewhere
        self._stage = _Stage.OPEN

    @property
    def handle(self) -> Connection:
        """What the user works with."""
        return self._session.connection

    def prepare(self) -> Callable[[], Vote]:
        """Send the evidence row and PREPARE; a branch that is rolled back already is refused before."""
        if self._stage is not _Stage.OPEN:
            raise xa.ProtocolError(f"branch {self._branch.gid} was asked for its vote before")
        self._refuse_broken()
        self._stage = _Stage.ASKED
        with self._told():
            self._session.send(f"{self._evidence}; PREPARE TRANSACTION '{self._branch.gid}'")
        return self._vote

    def finish(self, decision: Decision) -> Callable[[], Finish]:
        """Send what was decided; a branch that has not voted yes can only be rolled back."""
        if self._stage is _Stage.ASKED:
            self._hear_out()
        if self._stage is _Stage.PREPARED:
            return self._second_phase(decision)
        if self._stage is _Stage.UNKNOWN:
            raise xa.ResourceManagerFailed(f"nobody knows how branch {self._branch.gid} voted; recovery finds out")
        if decision is Decision.COMMIT:
            raise xa.ProtocolError(f"branch {self._branch.gid} holds no yes that could be committed")
        if self._stage is _Stage.OPEN and not self._session.gone:
            self._stage = _Stage.OVER
            with self._told():
                self._session.send("ROLLBACK")
            return self._rolled_back
        return lambda: Finish.DONE  # the server rolls back what lost its session

    def commit(self, transaction: str | None) -> Callable[[], None]:
        """Send the evidence and COMMIT; with the transaction's own row, that commit is the decision."""
        if self._stage is not _Stage.OPEN:
            raise xa.ProtocolError(f"branch {self._branch.gid} was asked for its vote before")
        self._refuse_broken()
        self._stage = _Stage.UNKNOWN
        try:
            self._session.send("; ".join([*([self._main] if transaction else []), self._evidence, "COMMIT"]))
        except SessionLost as lost:
            raise self._unknown(lost) from lost
        return self._committed

    def leave(self) -> None:
        """Give the session back."""
        self._session.give_back()

    def _refuse_broken(self) -> None:
        gid, session = self._branch.gid, self._session
        if session.gone:
            raise xa.CommunicationFailed(f"the session of branch {gid} was lost before its vote: it is rolled back")
        if session.state == TransactionStatus.INERROR:
            raise xa.RolledBack(
                f"a statement of branch {gid} failed and its error was dropped, so the database rolls all of it back; "
                "let the error leave the step, or fence the statement off with begin_nested()"
            )
        if not session.in_first_transaction:
            raise ended_inside(self._branch)

    def _committed(self) -> None:
        try:
            answer = self._session.receive()[-1]
        except SessionLost as lost:
            raise self._unknown(lost) from lost
        if answer.state and self._session.state == TransactionStatus.INERROR:
            with self._told():
                self._session.ask("ROLLBACK")
        self._session.forget_transaction()
        self._stage = _Stage.OVER
        if answer.state == codes.DUPLICATE_KEY and answer.table == EVIDENCE:
            raise DecidedOtherwise(int(self._branch.transaction.rpartition("-")[2], 16), Decision.ROLLBACK.name)
        if ELSEWHERE in answer.why:
            raise ended_inside(self._branch)
        if answer.state:
            raise codes.of_state(answer.state)(f"branch {self._branch.gid} can't commit: {answer.why}")
        if answer.tag != "COMMIT":  # so a failed transaction answers, without an error
            raise xa.RolledBack(f"branch {self._branch.gid} was rolled back instead of committed: {answer.tag}")

    def _unknown(self, lost: SessionLost) -> OutcomeUnknown:
        return OutcomeUnknown(f"whether branch {self._branch.gid} has committed is not known: {lost}")

    def _vote(self) -> Vote:
        """Wait for the answer to PREPARE."""
        self._stage = _Stage.UNKNOWN
        with self._told():
            answers = self._session.receive()
        self._stage = _Stage.OVER
        self._session.forget_transaction()
        refuse_no(answers[-1], self._branch)
        self._stage = _Stage.PREPARED
        mark, written, _ = answers[-2].row
        if mark != self._branch.gid:
            self._take_back(Decision.ROLLBACK)
            raise ended_inside(self._branch)
        if written == "0":
            self._take_back(Decision.COMMIT)
            return Vote.READ_ONLY
        return Vote.PREPARED

    def _take_back(self, decision: Decision) -> None:
        """End at once what holds nothing of the branch."""
        with self._told():
            answer = self._session.ask(self._ending(decision))
        if answer.state:
            raise xa.ResourceManagerFailed(f"branch {self._branch.gid} can't be ended: {answer.why}")
        self._stage = _Stage.OVER

    def _hear_out(self) -> None:
        """Take the answer to PREPARE that nobody waited for."""
        try:
            self._vote()
        except (xa.VotedNo, xa.DuplicateBranch):
            self._stage = _Stage.OVER

    def _second_phase(self, decision: Decision) -> Callable[[], Finish]:
        if self._session.lost or self._session.state != TransactionStatus.IDLE:  # the handle was used after the vote
            return lambda: self._from_elsewhere(decision)
        with self._told():
            self._session.send(self._ending(decision))
        return lambda: self._finished(decision)

    def _finished(self, decision: Decision) -> Finish:
        with self._told():
            answer = self._session.receive()[-1]
        if answer.state:  # somebody else finished it, or is about to
            return self._from_elsewhere(decision)
        self._stage = _Stage.OVER
        return Finish.DONE

    def _from_elsewhere(self, decision: Decision) -> Finish:
        self._session.give_back()  # the pool may have no other
        found = self._elsewhere(decision)
        self._stage = _Stage.OVER
        return found

    def _rolled_back(self) -> Finish:
        with self._told():
            self._session.receive()
        self._session.forget_transaction()
        return Finish.DONE

    def _ending(self, decision: Decision) -> str:
        return f"{decision.name} PREPARED '{self._branch.gid}'"

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except SessionLost as lost:
            if self._stage is _Stage.ASKED:
                self._stage = _Stage.UNKNOWN
            raise xa.ResourceManagerFailed(
                f"the session of branch {self._branch.gid} was lost while it was asked: {lost}"
            ) from lost


def refuse_no(answer: Answer, branch: BranchId) -> None:
    """Raise what the answer to PREPARE means, unless it is a yes."""
    if answer.state == codes.DUPLICATE_KEY and answer.table == EVIDENCE:
        raise xa.DuplicateBranch(f"branch {branch.gid} has its evidence already: {answer.why}")
    if ELSEWHERE in answer.why:
        raise ended_inside(branch)
    if answer.state:
        raise codes.of_state(answer.state)(f"branch {branch.gid} votes no: {answer.why}")
    if answer.tag != "PREPARE TRANSACTION":  # so a failed transaction answers, without an error
        raise xa.RolledBack(f"branch {branch.gid} was rolled back instead of prepared: {answer.tag}")


def ended_inside(branch: BranchId) -> xa.RolledBack:
    """Say that a session is not where its branch began any more."""
    return xa.RolledBack(
        f"branch {branch.gid} is not where it began: its transaction was committed or rolled back inside the step, "
        "or its session leads to another database; leave both to the coordinator"
    )
