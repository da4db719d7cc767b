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
from txsaga.errors import ConfigError, OwnLock, ProtocolError, RetryLater, RolledBack
from txsaga.flows.batches import noted
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.flows.journal import Journalled
from txsaga.flows.self_deadlock import StepDeadlockDetector
from txsaga.flows.step import Step
from txsaga.resources.participant import EnlistedBranch, Journals, Participant, Waiting


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
    if not isinstance(participant, Journals):
        raise ConfigError(f"{participant.name!r} takes no statements; its journal can't be done")
    with watch_for(participant, session, branch, held) as watch:
        try:
            participant.do(session, statements)
        except Exception as error:
            if watch.found is None:
                raise
            raise own_lock("the journal", participant, watch.found, held, branch.transaction) from error


def watch_for(
    participant: Participant, session: EnlistedBranch, branch: BranchId, held: Sequence[Step]
) -> StepDeadlockDetector:
    """Return what finds out if work in a session waits for steps of its own flow."""
    if not isinstance(participant, Waiting):
        return StepDeadlockDetector(None)
    return StepDeadlockDetector(participant.waits(session, branch, [each.mark for each in held]))


def own_lock(what: str, participant: Participant, holder: str, held: Sequence[Step], transaction: str) -> OwnLock:
    """Return the error of work that waited for a step of its own flow."""
    for step in held:
        if holder in (step.mark, BranchId(transaction, step.branch or 0, step.attempt).gid):
            holder = f"step {step.name!r}"
    return OwnLock(what, participant.name, holder)


def free(kernel: Kernel, txid: int, participant: Participant, branches: Iterable[BranchId]) -> None:
    """Roll back what dead processes prepared, and note it; recovery retries what a session still holds open."""
    for branch in branches:
        try:
            with kernel.announce.around(facts.Finishing, txid, about=participant.name):
                participant.finish(branch, Decision.ROLLBACK)
        except RetryLater:
            continue
        kernel.notes.add([noted(txid, branch, Decision.ROLLBACK, Finish.DONE)])
