"""
A branch that a step left prepared, as the process that ends the flow has it: it has voted already.

Before the decision is written, its resource is asked whether it still holds it: what an administrator rolled back
meanwhile is a no, not a surprise behind the decision. It is never rolled back before ROLLBACK stands, or another
process that ends the flow would elect what is gone.
"""

from __future__ import annotations

from collections.abc import Callable

from txsaga.errors.xa import ProtocolError, RolledBack
from txsaga.model.branch import BranchId, Finish, Vote
from txsaga.model.decision import Decision
from txsaga.ports.participants import Participant


class HeldBranch:
    """A prepared branch without a session of its own here."""

    def __init__(self, participant: Participant, branch: BranchId, step: str) -> None:
        self._participant, self._branch, self._step = participant, branch, step

    @property
    def handle(self) -> object:
        """Refuse: its work is over."""
        raise ProtocolError(f"the work of step {self._step!r} is over; it can only be committed or rolled back")

    def prepare(self) -> Callable[[], Vote]:
        """Look whether its resource still holds it."""
        return self._look

    def finish(self, decision: Decision) -> Callable[[], Finish]:
        """Do what was decided."""
        return lambda: self._participant.finish(self._branch, decision)

    def commit(self, transaction: str | None) -> Callable[[], None]:
        """Refuse: it is past one phase."""
        raise ProtocolError(f"branch {self._branch.gid} is prepared; it waits for a decision")

    def leave(self) -> None:
        """Leave it prepared."""

    def _look(self) -> Vote:
        if self._branch not in self._participant.prepared(self._branch.store):
            raise RolledBack(
                f"what step {self._step!r} prepared as {self._branch.gid} is gone from {self._participant.name!r}: "
                "somebody finished it by hand"
            )
        return Vote.PREPARED
