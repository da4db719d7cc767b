"""
A participant that reserves: its try is its vote, its confirm or cancel is its second phase.

The data to confirm or cancel is read from the reservation, so any process that knows its name can do it. Both are
called until they answer, and again if their answer was lost: the second call must have no effect.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from inspect import isawaitable, iscoroutine
from typing import TYPE_CHECKING, Protocol
from uuid import UUID, uuid5

from txsaga import errors
from txsaga.core.arguments import check_function
from txsaga.core.decision import Decision
from txsaga.core.failure import report_failure
from txsaga.core.stored_json import as_json
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.resources.capabilities import CAPABILITIES, ResourceKind
from txsaga.resources.participant import HomeStore
from txsaga.resources.reservations import Reservation, ReservationState
from txsaga.resources.two_phase import VotingBranch, VotingParticipant
from txsaga.store.right import Right

if TYPE_CHECKING:
    from txsaga.resources.reservations_store import Reservations


class Calls(Protocol):
    """Try, confirm and cancel of one participant."""

    def attempt(self, branch: BranchId, arguments: Mapping[str, object]) -> object:
        """Reserve; any error is a no. The return value goes to the user."""

    def confirm(self, branch: BranchId, reserved: Reservation) -> Finish:
        """Do what was reserved: DONE, or HAZARD if it is not known there. After an `XaError` it is called again."""

    def cancel(self, branch: BranchId, reserved: Reservation) -> Finish:
        """Undo what was reserved, even if the try never arrived."""


class TccWork:
    """What a user works with: calling it is the try, once per transaction."""

    def __init__(self, participant: TccParticipant, calls: Calls, reservations: Reservations, branch: BranchId) -> None:
        self._name, self._calls, self._reservations, self._branch = participant.name, calls, reservations, branch
        self.closed = False
        self.begun = False
        self.refusal: BaseException | None = None

    @property
    def id(self) -> str:
        """The name of the branch, as passed to try, confirm and cancel."""
        return self._branch.gid

    def __call__(self, **arguments: object) -> object:
        """Reserve with these arguments; return what the try returns."""
        if self.closed:
            raise errors.TransactionClosed(
                f"the branch in {self._name!r} was asked for its vote: it is too late to try"
            )
        if self.begun:
            raise errors.TransactionClosed(
                f"{self._name!r} was already tried in this transaction; reserve everything in one try"
            )
        kept: dict[str, object] = json.loads(as_json(arguments, f"the arguments of {self._name!r}"))
        self.begun = True
        self.refusal = errors.RolledBack(f"the try of branch {self.id} in {self._name!r} did not end")
        with report_failure(self._refuse):
            if not self._reservations.begin(self._branch, self._name, kept):
                raise errors.RolledBack(f"branch {self.id} is closed in {self._name!r}: its try comes too late")
            answer = self._calls.attempt(self._branch, kept)
        self.refusal = None
        return answer

    def _refuse(self, error: BaseException) -> None:
        self.refusal = error


class TccBranch(VotingBranch):
    """The work of one branch."""

    def __init__(self, participant: TccParticipant, calls: Calls, reservations: Reservations, branch: BranchId) -> None:
        super().__init__(branch)
        self._participant, self._reservations, self._over = participant, reservations, False
        self.handle = TccWork(participant, calls, reservations, branch)

    def leave(self) -> None:
        """Release the branch; cancel it unless it has voted yes."""
        self.handle.closed = True
        if self.handle.begun and not self._prepared and not self._over:
            with suppress(errors.TxSagaError):  # recovery cancels it once the transaction is decided
                self._participant.finish(self._branch, Decision.ROLLBACK)

    def _close(self) -> None:
        self.handle.closed = True

    def _vote(self) -> Vote:
        if not self.handle.begun:
            return Vote.READ_ONLY
        if self.handle.refusal is not None:
            raise errors.RolledBack(
                f"branch {self._branch.gid} votes no: {self.handle.refusal}"
            ) from self.handle.refusal
        try:
            held = self._reservations.hold(self._branch)
        except errors.StoreUnavailable as lost:
            raise errors.CommunicationFailed(f"branch {self._branch.gid} can't be held: {lost}") from lost
        except errors.TxSagaError as lost:
            raise errors.OtherReason(f"branch {self._branch.gid} can't be held: {lost}") from lost
        if not held:
            raise errors.RolledBack(f"branch {self._branch.gid} votes no: it was cancelled meanwhile")
        self._prepared = True
        return Vote.PREPARED

    def _end(self, decision: Decision) -> Finish:
        found = self._participant.finish(self._branch, decision) if self.handle.begun else Finish.DONE
        self._over = True
        return found


class TccParticipant(VotingParticipant):
    """One registered set of calls."""

    def __init__(self, calls: Calls, *, name: str, kind: ResourceKind, place: str, store: HomeStore) -> None:
        self.name, self._kind, self._calls, self._store = name, kind, calls, store
        self.capabilities, self._place = CAPABILITIES[kind], place

    @property
    def database(self) -> UUID:
        """A uuid derived from the store and the place: it has none of its own."""
        return uuid5(self._store.registry.identity.uuid, f"{self._kind}:{self._place}")

    def probe(self) -> None:
        """Raise `ConfigError` unless this login can write its reservations."""
        if Right.PRODUCER not in self._store.rights:
            raise errors.ConfigError(
                f"participant {self.name!r} can't vote: this login has no producer right; grant it"
            )

    def enlist(self, branch: BranchId) -> TccBranch:
        """Open a branch; nothing is called before the user's own call."""
        return TccBranch(self, self._calls, self._store.reservations, branch)

    def finish(self, branch: BranchId, decision: Decision) -> Finish:
        """Confirm or cancel, from any process; if that is done already, the reservation shows the outcome."""
        return self._confirmed(branch) if decision is Decision.COMMIT else self._cancelled(branch)

    def prepared(self, store: str) -> Sequence[BranchId]:
        """Return every branch that is held, or still to be cancelled, for a store."""
        return self._store.reservations.held(self.name, store)

    def forget(self, branch: BranchId) -> None:
        """Delete the reservation."""
        self._store.reservations.drop(branch)

    def _confirmed(self, branch: BranchId) -> Finish:
        found = self._store.reservations.find(branch)
        match found.state if found else None:
            case ReservationState.CONFIRMED:
                return Finish.DONE
            case ReservationState.OPEN:
                raise errors.ProtocolError(f"branch {branch.gid} did not vote yes, so it can't be committed")
            case ReservationState.HELD:
                assert found is not None
                finish = self._calls.confirm(branch, found)
                if finish is Finish.DONE:
                    self._store.reservations.settle(branch, Decision.COMMIT)
                return finish
            case _:
                return Finish.ROLLED_BACK

    def _cancelled(self, branch: BranchId) -> Finish:
        found = self._store.reservations.shut(branch, self.name)
        match found.state:
            case ReservationState.CONFIRMED:
                return Finish.COMMITTED
            case ReservationState.CANCELLED:
                return Finish.DONE
            case _:
                finish = self._calls.cancel(branch, found)
                if finish is Finish.DONE:
                    self._store.reservations.settle(branch, Decision.ROLLBACK)
                return finish


FIRST = "give a function that takes the branch's id and the arguments"


class Callables:
    """
    Three functions to register, each called as `function(id, **arguments)`.

    The try reserves, and raises to vote no. A second confirm or cancel must have no effect, nor may a cancel if the try
    did nothing. None of them may wait for the transaction itself.
    """

    def __init__(
        self, *, try_: Callable[..., object], confirm: Callable[..., object], cancel: Callable[..., object]
    ) -> None:
        for function, what in ((try_, "try_"), (confirm, "confirm"), (cancel, "cancel")):
            check_function(function, what, FIRST)
        self._try, self._confirm, self._cancel = try_, confirm, cancel

    def participant(self, name: str, store: HomeStore) -> TccParticipant:
        """Return the functions as a participant."""
        return TccParticipant(self, name=name, kind=ResourceKind.CALLABLE, place=name, store=store)

    def attempt(self, branch: BranchId, arguments: Mapping[str, object]) -> object:
        """Call the try."""
        answer = self._try(branch.gid, **arguments)
        if isawaitable(answer):
            raise errors.OtherReason(_never_run("try_", branch, answer))
        return answer

    def confirm(self, branch: BranchId, reserved: Reservation) -> Finish:
        """Call the confirm."""
        return _done("confirm", self._confirm, branch, reserved)

    def cancel(self, branch: BranchId, reserved: Reservation) -> Finish:
        """Call the cancel."""
        return _done("cancel", self._cancel, branch, reserved)


def _done(what: str, function: Callable[..., object], branch: BranchId, reserved: Reservation) -> Finish:
    try:
        answer = function(branch.gid, **reserved.arguments)
    except Exception as error:  # any error: the user's function is called again
        raise errors.ResourceManagerError(
            f"{what} of branch {branch.gid} raised {type(error).__name__}: {error}"
        ) from error
    if isawaitable(answer):
        raise errors.ResourceManagerError(_never_run(what, branch, answer))
    return Finish.DONE


def _never_run(what: str, branch: BranchId, answer: Awaitable[object]) -> str:
    if iscoroutine(answer):
        answer.close()
    kind = type(answer).__name__
    return f"{what} of branch {branch.gid} returned {kind}, which is never awaited; return when the work is done"
