"""
What a flow holds in a resource, finished by other processes than the one that did it.

A prepared branch has no session there; a journal is executed by the process that settles it. What a dead process
prepared is rolled back before: its locks would block the work that takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from txsaga.core import facts
from txsaga.core.decision import Decision
from txsaga.core.kernel import Kernel
from txsaga.errors import ProtocolError, RetryLater, RolledBack
from txsaga.flows.batches import noted
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.flows.journal import Journalled
from txsaga.flows.self_deadlock import SelfDeadlockDetector, held_by
from txsaga.flows.sessions_in_loop import execute
from txsaga.flows.step import Step
from txsaga.resources.participant import EnlistedBranch, Participant


class HeldBranch:
    """A prepared branch that has no session here."""

    def __init__(self, participant: Participant, branch: BranchId, step: str) -> None:
        self._participant, self._branch, self._step = participant, branch, step

    @property
    def handle(self) -> object:
        """Refuse: its work is over."""
        raise ProtocolError(f"the work of step {self._step!r} is over; it can only be committed or rolled back")

    def prepare(self) -> Callable[[], Vote]:
        """Check whether its resource still holds it."""
        return self._look

    def finish(self, decision: Decision) -> Callable[[], Finish]:
        """Carry out the decision."""
        return lambda: self._participant.finish(self._branch, decision)

    def commit(self, transaction: str | None) -> Callable[[], None]:
        """Refuse: it is past one-phase commit."""
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


def do_journal(
    participant: Participant,
    session: EnlistedBranch,
    branch: BranchId,
    statements: Sequence[Journalled],
    held: Sequence[Step],
) -> None:
    """Execute statements in an open branch; `held` are the steps of the flow that are held prepared there."""
    watch = SelfDeadlockDetector(branch.transaction)
    watch.enter(participant.name, participant, session, held=held_by(branch.transaction, held))
    try:
        execute(participant, session, statements)
    except Exception as error:
        if (own := watch.found(participant.name, error)) is not None:
            raise own from error
        raise
    finally:
        watch.close()


def free(kernel: Kernel, txid: int, participant: Participant, branches: Iterable[BranchId]) -> None:
    """Roll back what dead processes prepared, and note it; recovery retries what a session still holds open."""
    for branch in branches:
        try:
            with kernel.announce.around(facts.Finishing, txid, about=participant.name):
                participant.finish(branch, Decision.ROLLBACK)
        except RetryLater:
            continue
        kernel.notes.add([noted(txid, branch, Decision.ROLLBACK, Finish.DONE)])
