"""
One branch of a participant that reserves.

    enlist      nothing is called
    the user calls the handle: the arguments are durable, then the try runs
    prepare     the reservation is held: the yes; where nothing was tried it leaves
    finish      confirm or cancel

It must not decide anything. If this process dies behind the arguments, the reservation is cancelled with its
transaction, whether the try has run or not.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from txsaga.adapters.tcc.calls import Calls
from txsaga.engine.sent import sent
from txsaga.errors import StoreUnavailable, TransactionClosed, TxSagaError, xa
from txsaga.model.branch import BranchId, Finish, Vote
from txsaga.model.decision import Decision
from txsaga.model.keeping import as_json
from txsaga.ports.reservations import Reservations

if TYPE_CHECKING:
    from txsaga.adapters.tcc.participant import TccParticipant


class TccWork:
    """What a user works with: calling it is the try, once in a transaction."""

    def __init__(self, participant: TccParticipant, calls: Calls, reservations: Reservations, branch: BranchId) -> None:
        self._name, self._calls, self._reservations, self._branch = participant.name, calls, reservations, branch
        self.closed = False
        self.begun = False
        self.refusal: BaseException | None = None

    @property
    def id(self) -> str:
        """The name of the branch, as try, confirm and cancel get it."""
        return self._branch.gid

    def __call__(self, **arguments: object) -> object:
        """Reserve with these arguments; return what the try returns."""
        if self.closed:
            raise TransactionClosed(f"the branch in {self._name!r} was asked for its vote: it is too late to try")
        if self.begun:
            raise TransactionClosed(f"{self._name!r} was tried in this transaction; give one try all it has to reserve")
        kept: dict[str, object] = json.loads(as_json(arguments, f"the arguments of {self._name!r}"))
        self.begun = True
        self.refusal = xa.RolledBack(f"the try of branch {self.id} in {self._name!r} did not end")
        try:
            if not self._reservations.begin(self._branch, self._name, kept):
                raise xa.RolledBack(f"branch {self.id} is closed in {self._name!r}: its try comes too late")
            answer = self._calls.attempt(self._branch, kept)
        except BaseException as error:
            self.refusal = error
            raise
        self.refusal = None
        return answer


class TccBranch:
    """The work of one branch."""

    def __init__(self, participant: TccParticipant, calls: Calls, reservations: Reservations, branch: BranchId) -> None:
        self._participant, self._reservations, self._branch = participant, reservations, branch
        self.handle = TccWork(participant, calls, reservations, branch)
        self._vote: Callable[[], Vote] | None = None
        self._prepared = self._over = False

    def prepare(self) -> Callable[[], Vote]:
        """Ask for the vote; a branch that tried nothing leaves."""
        if self._vote is not None:
            raise xa.ProtocolError(f"branch {self._branch.gid} was asked for its vote before")
        self.handle.closed = True
        self._vote = sent(self._voted)
        return self._vote

    def finish(self, decision: Decision) -> Callable[[], Finish]:
        """Confirm or cancel; a branch that has not voted yes can only be cancelled."""
        self.handle.closed = True
        if self._vote is not None:
            with suppress(xa.XaError):
                self._vote()
        if decision is Decision.COMMIT and not self._prepared:
            raise xa.ProtocolError(f"branch {self._branch.gid} holds no yes that could be committed")
        if not self.handle.begun:
            return lambda: Finish.DONE
        return sent(lambda: self._finished(decision))

    def commit(self, transaction: str | None) -> Callable[[], None]:
        """Refuse: what only reserves decides for nobody."""
        raise xa.ProtocolError(f"branch {self._branch.gid} of {transaction} reserves, so it can't decide; it votes")

    def leave(self) -> None:
        """Let it go; what did not vote is cancelled."""
        self.handle.closed = True
        if self.handle.begun and not self._prepared and not self._over:
            with suppress(TxSagaError):  # recovery cancels it once the transaction is decided
                self._participant.finish(self._branch, Decision.ROLLBACK)

    def _voted(self) -> Vote:
        if not self.handle.begun:
            return Vote.READ_ONLY
        if self.handle.refusal is not None:
            raise xa.RolledBack(f"branch {self._branch.gid} votes no: {self.handle.refusal}") from self.handle.refusal
        try:
            held = self._reservations.hold(self._branch)
        except StoreUnavailable as lost:
            raise xa.CommunicationFailed(f"branch {self._branch.gid} can't be held: {lost}") from lost
        except TxSagaError as lost:
            raise xa.OtherReason(f"branch {self._branch.gid} can't be held: {lost}") from lost
        if not held:
            raise xa.RolledBack(f"branch {self._branch.gid} votes no: it was cancelled meanwhile")
        self._prepared = True
        return Vote.PREPARED

    def _finished(self, decision: Decision) -> Finish:
        found = self._participant.finish(self._branch, decision)
        self._over = True
        return found
