"""
A branch whose work is a journal, in MariaDB or MySQL: all of it is one message, from XA START to XA PREPARE.

    XA START, evidence row, the journal's statements, XA END, XA PREPARE    one round trip, in which its locks begin
    XA COMMIT                                                               one round trip, on the same session

The server stops at the first statement that fails, so nothing is prepared then. A branch that was prepared but not as
recorded is rolled back: the answers show how many rows each statement changed, and how many statements there were. If
the message never arrives, nothing was done. A branch that commits in one phase works in an ordinary session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from sqlalchemy.dialects.mysql import pymysql as pymysql_dialect

from txsaga.core.decision import Decision
from txsaga.errors import CommunicationFailed, DuplicateBranch, ProtocolError, ResourceManagerFailed, RolledBack
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.flows.step_records import Journalled
from txsaga.resources import codes
from txsaga.resources.journal import forms, named, rendered, require_rows, untold
from txsaga.resources.mysql_branch import MysqlBranch, MysqlStage
from txsaga.resources.mysql_protocol import Answers, LentSession, MysqlSilent
from txsaga.resources.mysql_session import MysqlSessionLost, Refused

AT_ONCE = 128 * 1024
"""Characters of work, of at most four bytes, in one message: a server's limit is `max_allowed_packet`."""
_BEHIND = 2
"""Answers after those of the journal: to XA END and to XA PREPARE."""
_formed = forms(pymysql_dialect.MySQLDialect_pymysql(paramstyle="pyformat"))


class Around(NamedTuple):
    """What the participant gives a branch besides its work."""

    xid: str
    level: str  # the statement that sets its isolation level, if the engine has one
    evidence: str  # the statement that inserts its row
    refuse_other: Callable[[], None]  # if the row was not written: it is another database
    elsewhere: Callable[[Decision], Finish]
    opened: Callable[[], MysqlBranch]  # does the work in an ordinary session


class MysqlJournal(MysqlBranch):
    """The work of one branch, of which nothing is sent before its vote is asked for."""

    _session: LentSession

    def __init__(
        self,
        session: LentSession,
        branch: BranchId,
        around: Around,
        statements: Sequence[Journalled],
        *,
        place: str,
        patience: float,
    ) -> None:
        super().__init__(session, branch, around.xid, _never, around.elsewhere, patience)
        self._around, self._statements, self._place = around, statements, place
        written = [rendered(session, each, _formed(each.text), place) for each in statements]
        self._work = "\n;".join(written)  # the newline ends a trailing comment
        self._ordinary: MysqlBranch | None = None
        self._whole, self._against = "", False  # against: prepared, but not as recorded
        self._begun = self._before = 0  # answers before the branch is open, and before the journal's

    def prepare(self) -> Callable[[], Vote]:
        """Send all of it; the returned function waits for the vote."""
        if self._stage is not MysqlStage.OPEN:
            raise ProtocolError(f"branch {self._branch.gid} was asked for its vote before")
        if self._session.gone:
            self._stage = MysqlStage.LOST
            raise CommunicationFailed(
                f"the session of branch {self._branch.gid} was lost before its vote: nothing of it was done"
            )
        if len(self._work) > AT_ONCE:
            return self._in_session().prepare()
        self._stage, xid = MysqlStage.UNKNOWN, self._xid
        before = [self._around.level] if self._around.level else []
        before += [f"XA START {xid}", self._around.evidence]
        self._begun, self._before = len(before) - 1, len(before)
        self._whole = f"{';'.join(before)};{self._work}\n;XA END {xid};XA PREPARE {xid}"
        try:
            self._session.send(self._whole, several=True)
        except MysqlSessionLost as lost:
            raise self._lost_while_asked(lost) from lost
        return self._voted

    def finish(self, decision: Decision) -> Callable[[], Finish]:
        """Send the decision, if the server holds a yes."""
        if self._ordinary is not None:
            return self._ordinary.finish(decision)
        if self._stage is MysqlStage.OPEN and decision is Decision.ROLLBACK:
            self._stage = MysqlStage.OVER
            return lambda: Finish.DONE
        if self._against and decision is Decision.COMMIT:
            raise ProtocolError(f"branch {self._branch.gid} holds no yes that could be committed")
        if self._stage is not MysqlStage.PREPARED or self._session.lost:
            return super().finish(decision)
        try:
            self._session.send(f"XA {decision.name} {self._xid}")
        except MysqlSilent as silent:
            raise self._lost_while_asked(silent) from silent
        except MysqlSessionLost:
            return lambda: self._from_elsewhere(decision)
        return lambda: self._finished(decision)

    def commit(self, transaction: str | None) -> Callable[[], None]:
        """Do the work in an ordinary session, which checks it before it commits."""
        if self._stage is not MysqlStage.OPEN:
            raise ProtocolError(f"branch {self._branch.gid} was asked for its vote before")
        return self._in_session().commit(transaction)

    def take_back(self) -> Callable[[], None]:
        """Roll back any vote; once that is done, the branch can be asked again."""
        if self._stage is MysqlStage.OPEN:
            return lambda: None
        if self._stage not in (MysqlStage.PREPARED, MysqlStage.NO) or self._session.lost:
            raise ProtocolError(f"branch {self._branch.gid} can't be asked again")
        done = self.finish(Decision.ROLLBACK)

        def taken_back() -> None:
            if done() is not Finish.DONE or self._session.lost:
                raise ResourceManagerFailed(f"branch {self._branch.gid} can't be rolled back")
            self._stage = MysqlStage.OPEN

        return taken_back

    def leave(self) -> None:
        """Give the session back if nothing is pending in it, else close it."""
        if self._ordinary is not None:
            self._ordinary.leave()
        elif self._stage in (MysqlStage.OPEN, MysqlStage.OVER):
            self._session.give_back()
        else:
            self._session.end()

    def _in_session(self) -> MysqlBranch:
        """Do the work in an ordinary session, which checks each statement."""
        self._session.give_back()
        self._stage, self._ordinary = MysqlStage.LOST, self._around.opened()
        return self._ordinary

    def _voted(self) -> Vote:
        try:
            answers = self._session.receive(self._patience)
            if len(answers.counts) < self._begun and answers.refused and answers.refused.number in codes.BEGUN_BEFORE:
                self._session.run("ROLLBACK")  # an earlier use of the connection left a transaction open
                self._session.send(self._whole, several=True)
                answers = self._session.receive(self._patience)
        except (MysqlSessionLost, Refused) as lost:
            raise self._lost_while_asked(lost) from lost
        if answers.refused is not None:
            self._refuse(answers, answers.refused)
        self._stage, self._against = MysqlStage.PREPARED, True
        counts = answers.counts[self._before : -_BEHIND]
        if len(counts) != len(self._statements):
            raise RolledBack(
                f"the journal for {self._place!r} holds other statements than it seems to; "
                "give each to an execute of its own, and values as parameters"
            )
        if answers.counts[self._before - 1] != 1:
            self._around.refuse_other()
        for statement, count in zip(self._statements, counts, strict=True):
            require_rows(statement, self._place, count)
        self._against = False
        return Vote.PREPARED

    def _refuse(self, answers: Answers, refused: Refused) -> None:
        at = len(answers.counts)
        self._stage = MysqlStage.OVER if at < self._begun else MysqlStage.NO
        if at < self._before and refused.number in (codes.DUPLICATE_XID, codes.DUPLICATE_ENTRY):
            raise DuplicateBranch(f"branch {self._branch.gid} exists already")
        kind, which, why = codes.of_code(refused.number), f"branch {self._branch.gid} votes no", untold(str(refused))
        if at < self._before or at - self._before >= len(self._statements):
            raise kind(f"{which}: {why}")
        statement = named(self._statements[at - self._before], self._place)
        raise kind(f"{which}: {statement} can't be done: {why}")

    def _finished(self, decision: Decision) -> Finish:
        try:
            refused = self._session.receive(self._patience).refused
        except MysqlSilent as silent:
            raise self._lost_while_asked(silent) from silent
        except MysqlSessionLost:
            return self._from_elsewhere(decision)
        if refused is not None:  # another session finished it, or is about to
            return self._from_elsewhere(decision)
        self._stage, self._session.over = MysqlStage.OVER, True
        return Finish.DONE

    def _roll_back(self) -> Finish:
        self._stage = MysqlStage.OPEN  # XA END was not reached
        return super()._roll_back()


def _never() -> None:
    raise AssertionError("the evidence of a transaction is written in an ordinary session")
