"""
A branch whose work is a journal: all of it is one message to PostgreSQL, from BEGIN to PREPARE.

    BEGIN, evidence row, the journal's statements, PREPARE    one round trip, in which its locks begin
    COMMIT PREPARED                                           one round trip, on the same session

No answer is read before the branch has voted: a statement that was not done as recorded makes the vote a no, and the
prepared branch is rolled back. No mark is needed: a journal accepts nothing that ends a transaction. An answer no
journal statement gives shows that one slipped through; then the row shows what it committed. A branch that commits in
one phase is begun, executed and checked before that. If the message never arrives, nothing was done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.dialects.postgresql import psycopg as psycopg_dialect

from txsaga.core.decision import Decision
from txsaga.errors import CommunicationFailed, OtherReason, ProtocolError, ResourceManagerFailed, RolledBack
from txsaga.evidence import libpq
from txsaga.evidence.libpq import ServerAnswer, SessionLost
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.flows.journal import of_short, read
from txsaga.flows.step_records import Journalled
from txsaga.resources import codes
from txsaga.resources.journal import named, require_rows, untold
from txsaga.resources.participant import LockPatience
from txsaga.resources.postgres_branch import PostgresBranch, PostgresStage, refuse_no
from txsaga.resources.postgres_session import DriverSession
from txsaga.resources.postgres_texts import Texts

LONGEST = {LockPatience.PATIENTLY: "5s", LockPatience.BRIEFLY: "1s"}
_ROLLBACK, _PREPARED = "ROLLBACK", "PREPARE TRANSACTION"
_BEFORE = 2
"""Answers before those of the journal: to BEGIN and to the evidence row."""
_DIALECT = psycopg_dialect.dialect()  # type: ignore[no-untyped-call]


class DriverStatement(NamedTuple):
    """A statement in the form that a driver reads."""

    text: str
    open: bool  # it has placeholders for values


@of_short
def _formed(statement: str) -> DriverStatement:
    """Convert a statement with parameters written `:name` into its driver's form."""
    compiled = text(statement).compile(dialect=_DIALECT)
    if compiled.params:
        return DriverStatement(str(compiled), True)
    return DriverStatement(str(compiled).replace("%%", "%"), False)


def _rendered(session: DriverSession, statement: Journalled, place: str) -> str:
    """Render a statement with its values, as it is sent."""
    form = _formed(statement.text)
    try:
        whole = session.literal(form.text, read(statement.parameters)) if form.open else form.text
        session.encode(whole)
    except session.unwritable as error:
        raise OtherReason(f"{named(statement, place)} can't be done: {' '.join(str(error).split())}") from error
    return whole


class PostgresJournal(PostgresBranch):
    """The work of one branch, of which nothing is sent before its vote is asked for."""

    _session: DriverSession

    def __init__(
        self,
        session: DriverSession,
        branch: BranchId,
        texts: Texts,
        elsewhere: Callable[[Decision], Finish],
        statements: Sequence[Journalled],
        *,
        place: str,
        waits: LockPatience,
    ) -> None:
        super().__init__(session, branch, texts, elsewhere)
        self._statements, self._place = statements, place
        self._wait = LONGEST[waits]
        self._escaped = False  # something in it may have committed by itself
        self._work = "\n;".join(
            [_rendered(session, each, place) for each in statements]
        )  # the newline ends a trailing comment

    def finish(self, decision: Decision) -> Callable[[], Finish]:
        """Send the decision, if the server was asked for anything."""
        if self._stage is PostgresStage.ASKED:
            self._hear_out()
        if self._escaped:
            return lambda: self._from_elsewhere(decision)
        if decision is Decision.ROLLBACK and self._stage is PostgresStage.OPEN:
            self._stage = PostgresStage.OVER
            return lambda: Finish.DONE
        return super().finish(decision)

    def commit(self, transaction: str | None) -> Callable[[], None]:
        """Execute the statements, check what they did, then send the evidence and COMMIT."""
        if self._stage is not PostgresStage.OPEN:
            raise ProtocolError(f"branch {self._branch.gid} was asked for its vote before")
        self._stage = PostgresStage.OVER
        try:
            self._session.begin(self._texts, self._branch)
            self._session.send(f"set local lock_timeout = '{LONGEST[LockPatience.PATIENTLY]}'; {self._work}")
            self._refuse_undone(_untold(self._session.receive()))
        except SessionLost as lost:
            raise CommunicationFailed(f"the session of branch {self._branch.gid} was lost: {lost}") from lost
        return PostgresBranch(self._session, self._branch, self._texts, self._elsewhere).commit(transaction)

    def take_back(self) -> Callable[[], None]:
        """Send a rollback of any vote; after the returned function, the branch can be asked again."""
        if self._stage is PostgresStage.OPEN:
            return lambda: None
        if self._escaped or self._stage not in (PostgresStage.PREPARED, PostgresStage.OVER) or self._session.lost:
            raise ProtocolError(f"branch {self._branch.gid} can't be asked again")
        self._send(self._ending(Decision.ROLLBACK) if self._stage is PostgresStage.PREPARED else _ROLLBACK)
        return self._taken_back

    def _taken_back(self) -> None:
        answer = self._receive()[-1]
        if answer.state:
            raise ResourceManagerFailed(f"branch {self._branch.gid} can't be rolled back: {answer.why}")
        self._stage, self._wait = PostgresStage.OPEN, LONGEST[LockPatience.PATIENTLY]

    def _refuse_broken(self) -> None:
        if self._session.gone:
            raise CommunicationFailed(
                f"the session of branch {self._branch.gid} was lost before its vote: nothing of it was done"
            )

    def _ended(self) -> str:
        session = self._session
        row = self._texts.first_row(self._branch, self._wait, prepared=session.prepared)
        return f"{session.beginning}; {row}; {self._work}\n;{self._word}"

    def _heard(self) -> Sequence[ServerAnswer]:
        session = self._session
        answers = session.receive()
        if answers[-1].state == libpq.UNPREPARED and len(answers) == _BEFORE:
            session.lose_statements()
            session.send(f"{_ROLLBACK}; {self._ended()}")
            answers = session.receive()[1:]
        return _untold(answers)

    def _refuse_no(self, answers: Sequence[ServerAnswer]) -> None:
        last = answers[-1]
        if last.state:
            self._refuse_failed(answers, before=_BEFORE)
        elif last.tag != _PREPARED:
            raise self._more_than_written()
        refuse_no(last, self._branch)

    def _voted(self, answers: Sequence[ServerAnswer]) -> Vote:
        self._require_rows(answers[_BEFORE:-1])
        return Vote.PREPARED

    def _refuse_undone(self, answers: Sequence[ServerAnswer]) -> None:
        """Refuse to commit what was not done as recorded."""
        if answers[-1].state:
            self._refuse_failed(answers, before=1)
            refuse_no(answers[-1], self._branch)
        self._require_rows(answers[1:])

    def _refuse_failed(self, answers: Sequence[ServerAnswer], *, before: int) -> None:
        """Raise an error that names the failed statement, unless it is one of ours."""
        *done, last = answers
        if _counts(done[before:]) is None:
            raise self._more_than_written()
        at = len(done) - before
        if 0 <= at < len(self._statements):
            which = named(self._statements[at], self._place)
            raise codes.of_code(last.state)(f"branch {self._branch.gid} votes no: {which} can't be done: {last.why}")

    def _require_rows(self, answers: Sequence[ServerAnswer]) -> None:
        counts = _counts(answers)
        if counts is None or len(counts) != len(self._statements):
            raise self._more_than_written()
        for statement, count in zip(self._statements, counts, strict=True):
            require_rows(statement, self._place, count)

    def _more_than_written(self) -> RolledBack:
        self._escaped = True
        return RolledBack(
            f"the journal for {self._place!r} holds other statements than it seems to, as by a backslash in a text; "
            "what they committed by themselves stays: give each to an execute of its own, and values as parameters"
        )


def _untold(answers: Sequence[ServerAnswer]) -> Sequence[ServerAnswer]:
    *done, last = answers
    return [*done, last._replace(why=untold(last.why))] if last.state else answers


def _counts(answers: Sequence[ServerAnswer]) -> Sequence[int] | None:
    """Return how many rows each statement changed; None if one is not of a journal."""
    counts = [answer.tag.rpartition(" ")[2] for answer in answers]
    return [int(count) for count in counts] if all(count.isdigit() for count in counts) else None
