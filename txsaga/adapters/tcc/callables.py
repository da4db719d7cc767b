"""
Three functions of a program as a participant.

They are called and their return is the answer. If one gives back what had to be awaited, nothing was done: it counts as
an error of that call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable, iscoroutine

from txsaga.adapters.tcc.participant import TccParticipant
from txsaga.errors import xa
from txsaga.model.arguments import check_function
from txsaga.model.branch import BranchId, Finish
from txsaga.model.capabilities import Kind
from txsaga.model.reservation import Reservation
from txsaga.ports.store import Store

FIRST = "give a function that takes the branch's id and the arguments"


class Callables:
    """
    Three functions to be registered, each called as `function(id, **arguments)`.

    The try reserves and raises to say no. Confirm and cancel must do nothing the second time, and a cancel nothing
    where the try did nothing. None of them may wait for the transaction itself.
    """

    def __init__(
        self, *, try_: Callable[..., object], confirm: Callable[..., object], cancel: Callable[..., object]
    ) -> None:
        for function, what in ((try_, "try_"), (confirm, "confirm"), (cancel, "cancel")):
            check_function(function, what, FIRST)
        self._try, self._confirm, self._cancel = try_, confirm, cancel

    def participant(self, name: str, store: Store) -> TccParticipant:
        """Return them as a participant."""
        return TccParticipant(self, name=name, kind=Kind.CALLABLE, place=name, store=store)

    def attempt(self, branch: BranchId, arguments: Mapping[str, object]) -> object:
        """Call the try."""
        answer = self._try(branch.gid, **arguments)
        if isawaitable(answer):
            raise xa.OtherReason(_never_run("try_", branch, answer))
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
    except Exception as error:  # whatever it is: the user's function is asked again
        raise xa.ResourceManagerError(
            f"{what} of branch {branch.gid} raised {type(error).__name__}: {error}"
        ) from error
    if isawaitable(answer):
        raise xa.ResourceManagerError(_never_run(what, branch, answer))
    return Finish.DONE


def _never_run(what: str, branch: BranchId, answer: Awaitable[object]) -> str:
    if iscoroutine(answer):
        answer.close()
    kind = type(answer).__name__
    return f"{what} of branch {branch.gid} returned {kind}, which nobody awaits; return when the work is done"
