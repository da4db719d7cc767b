"""
One branch in another store of ours, from its life's opening to the end of the second phase.

    enlist      the life is open in the broker, under the branch's name
    the user sends and consumes
    prepare     its halves and its yes are ONE commit; where nothing was done it leaves at once
    finish      the coordinator's word, by the one way to decide

Each step runs in a thread of its own, so that several brokers are at work at once. It must not decide anything. A
broker that is lost before the vote was sent is a no; after it nobody knows, and recovery finds out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum, auto

from txsaga.adapters.brokers.handle import BrokerWork
from txsaga.adapters.brokers.lives import BranchLives
from txsaga.engine.kernel import Kernel
from txsaga.engine.patience import patiently
from txsaga.engine.sent import sent
from txsaga.errors import (
    BrokerClosed,
    ClaimLost,
    DecidedOtherwise,
    EffectConflict,
    LeaseLost,
    OutcomeUnknown,
    StoreBusy,
    StoreUnavailable,
    TxSagaError,
    xa,
)
from txsaga.model.branch import BranchId, Finish, Vote
from txsaga.model.decision import Decision
from txsaga.model.records import Doubt, Life, Row


class _Stage(Enum):
    OPEN = auto()
    ASKED = auto()
    PREPARED = auto()
    UNKNOWN = auto()  # asked, and the answer lost
    OVER = auto()


class StoreBranch:
    """The work of one branch."""

    def __init__(self, kernel: Kernel, lives: BranchLives, branch: BranchId, life: Life) -> None:
        self._kernel, self._lives, self._branch, self._life = kernel, lives, branch, life
        self._work = BrokerWork(kernel, lives, life)
        self._stage = _Stage.OPEN
        self._vote: Callable[[], Vote]
        kernel.running.begin(self, Doubt.of(life))

    @property
    def handle(self) -> BrokerWork:
        """What the user works with."""
        return self._work

    def prepare(self) -> Callable[[], Vote]:
        """Ask for the vote; a branch that did nothing leaves."""
        if self._stage is not _Stage.OPEN:
            raise xa.ProtocolError(f"branch {self._branch.gid} was asked for its vote before")
        self._stage = _Stage.ASKED
        rows = self._work.close()
        self._vote = sent(lambda: self._voted(rows)) if self._work.used else sent(self._left)
        return self._vote

    def finish(self, decision: Decision) -> Callable[[], Finish]:
        """Tell what was decided; a branch that has not voted yes can only be rolled back."""
        if self._stage is _Stage.ASKED:
            with suppress(xa.XaError):
                self._vote()
        if decision is Decision.COMMIT and self._stage is _Stage.UNKNOWN:
            raise xa.ResourceManagerFailed(f"nobody knows how branch {self._branch.gid} voted; recovery finds out")
        if decision is Decision.COMMIT and self._stage is not _Stage.PREPARED:
            raise xa.ProtocolError(f"branch {self._branch.gid} holds no yes that could be committed")
        if self._stage is _Stage.OVER:
            return lambda: Finish.DONE  # its store rolls back what has not voted
        return sent(lambda: self._finished(decision))

    def commit(self, transaction: str | None) -> Callable[[], None]:
        """Refuse: a broker holds no evidence of another store's transaction."""
        raise xa.ProtocolError(f"branch {self._branch.gid} of {transaction} can't decide; a broker votes")

    def leave(self) -> None:
        """Let it go: what was not asked is rolled back."""
        if self._stage is _Stage.OPEN:
            with suppress(TxSagaError):  # its own check-back finds it, once nobody is heard of
                self._finished(Decision.ROLLBACK)
        self._kernel.running.end(self)

    def _voted(self, rows: list[Row]) -> Vote:
        after = _Stage.OVER
        try:
            self._work.require_whole()
            self._write(rows)
            after = _Stage.PREPARED
            return Vote.PREPARED
        except OutcomeUnknown as lost:
            after = _Stage.UNKNOWN
            raise xa.ResourceManagerFailed(f"the vote of branch {self._branch.gid} is not known: {lost}") from lost
        except TxSagaError as refused:
            raise code_of(refused)(f"branch {self._branch.gid} votes no: {refused}") from refused
        finally:
            self._stage = after
            self._kernel.running.end(self)

    def _write(self, rows: list[Row]) -> None:
        try:
            self._lives.vote(self._life, rows)
        except OutcomeUnknown as lost:
            try:
                patiently(lambda: self._lives.vote(self._life, rows))
            except (StoreUnavailable, BrokerClosed):
                raise lost from None

    def _left(self) -> Vote:
        try:
            self._lives.tell(self._branch, Decision.ROLLBACK)
        except TxSagaError as refused:
            raise code_of(refused)(f"branch {self._branch.gid} could not leave: {refused}") from refused
        finally:
            self._stage = _Stage.OVER
        return Vote.READ_ONLY

    def _finished(self, decision: Decision) -> Finish:
        self._work.close()
        found = self._lives.tell(self._branch, decision)
        self._stage = _Stage.OVER
        self._kernel.running.end(self)
        if found is Finish.DONE:
            self._work.tell(decision)
        return found


def code_of(refused: TxSagaError) -> type[xa.XaError]:
    """Return what an error of the broker means for a branch that was asked for its vote: a no, with its reason."""
    for kinds, code in _CODES:
        if isinstance(refused, kinds):
            return code
    return xa.OtherReason


_CODES: Sequence[tuple[tuple[type[TxSagaError], ...], type[xa.XaError]]] = (
    ((StoreUnavailable, BrokerClosed), xa.CommunicationFailed),
    ((StoreBusy,), xa.TransientFailure),
    ((DecidedOtherwise,), xa.TimedOut),  # its broker took the owner for dead
    ((LeaseLost, ClaimLost, EffectConflict), xa.IntegrityViolated),
)
