"""
What an operator does by hand: forget a branch that was decided outside txsaga, resume or skip a step of a saga.

Who did it and why is written in the same commit. Resuming drives nothing: the role does, at once. Skipping undoes
nothing: the operator has made sure that nothing is left to undo.

Forgetting removes the branch's row from the resource and changes nothing else there, nor the decision. A prepared
branch is refused: its locks would stay, unknown to everyone. The forgetting and its audit row are one commit; if the
resource is unavailable then, only its row stays there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from txsaga.checkback.by_hand import require_reason
from txsaga.core import facts
from txsaga.core.decision import Decision
from txsaga.core.kernel import Kernel
from txsaga.errors import IllegalTransition, ProtocolError, TxSagaError, UnknownBranch, UnknownStep, UnknownTransaction
from txsaga.flows.branch import HEURISTIC, Branch, BranchId
from txsaga.flows.requests import NONE
from txsaga.flows.step import STEP, Step, StepEvent, StepState


class Forgotten(NamedTuple):
    """A forgotten branch, and why its resource still keeps its row, if it does."""

    branch: Branch
    left: str = ""


class BranchesByHand:
    """Forgets branches for an operator who gives a reason."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._store = kernel, kernel.store

    def forget(
        self, txid: int, number: int | None = None, attempt: int | None = None, *, who: str, why: str
    ) -> Sequence[Forgotten]:
        """Forget the heuristic branches of a transaction, or one of them."""
        require_reason(why)
        wanted = [
            each for each in self._named(txid) if number in (None, each.number) and attempt in (None, each.attempt)
        ]
        if not wanted:
            raise UnknownBranch(f"transaction {txid} has no branch {number}; see `txsaga branch list --tx {txid}`")
        heuristic = [each for each in wanted if each.state in HEURISTIC]
        if not heuristic:
            states = ", ".join(dict.fromkeys(f"{each.number}.{each.attempt} {each.state}" for each in wanted))
            raise ProtocolError(
                f"transaction {txid} has nothing to acknowledge ({states}): only branches against its decision can be"
            )
        return [self._forget(each, who, why) for each in heuristic]

    def forget_all(self, *, who: str, why: str) -> Iterator[Forgotten]:
        """Forget every heuristic branch of the store."""
        require_reason(why)
        while page := self._store.work.branches_in(HEURISTIC, after=NONE):
            for branch in page:
                yield self._forget(branch, who, why)

    def _named(self, txid: int) -> Sequence[Branch]:
        found = self._store.work.branches(txid)
        if not found and self._store.overview.transaction(txid) is None:
            raise UnknownTransaction(f"transaction {txid} is not in this store")
        return found

    def _forget(self, branch: Branch, who: str, why: str) -> Forgotten:
        txid, name = branch.txid, f"{branch.number}.{branch.attempt}"
        with self._kernel.announce.around(facts.Noting, txid, about=name), self._store.ledgers.open() as ledger:
            if ledger.forget(txid, branch.number, branch.attempt):
                ledger.record(txid, f"BRANCH {name} FORGOTTEN", who=who, why=f"{why} (it was {branch.state})")
        return Forgotten(branch, self._drop(branch))

    def _drop(self, branch: Branch) -> str:
        """Drop what the resource keeps of the branch; return why it could not."""
        id = BranchId(self._store.registry.identity.transaction(branch.txid), branch.number, branch.attempt)
        try:
            participant = self._kernel.reach(branch.resource)
            if participant.database != self._store.registry.resource_by_id(branch.recorded).database:
                return f"resource {branch.resource!r} points to another database than the recorded one"
            with self._kernel.announce.around(facts.Noting, branch.txid, about=branch.resource):
                participant.forget(id)
        except TxSagaError as reason:
            return str(reason)
        return ""


WORDS = {StepEvent.RESUME: "STEP RESUMED", StepEvent.SKIP: "STEP SKIPPED"}


class SagasByHand:
    """An operator's actions on sagas."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def resume(self, txid: int, *, who: str, why: str, number: int | None = None) -> Sequence[Step]:
        """Have the steps that are out of retries, or one of them, retried; return them."""
        steps = self._steps(txid, number)
        found = [step for step in steps if step.state is StepState.COMPENSATION_FAILED]
        if not found:
            raise IllegalTransition(f"no step of saga {txid} is out of retries; nothing is to be resumed")
        return [self._move(step, StepEvent.RESUME, who, why) for step in found]

    def skip(self, txid: int, number: int, *, who: str, why: str) -> Step:
        """Leave a step as it is; return it."""
        (step,) = self._steps(txid, number)
        if step.state is StepState.STARTED and not step.forward:
            raise IllegalTransition(f"step {number} of saga {txid} is not to be compensated; roll the saga back first")
        return self._move(step, StepEvent.SKIP, who, why)

    def _steps(self, txid: int, number: int | None) -> Sequence[Step]:
        steps = self._kernel.store.work.steps(txid)
        if not steps:
            raise UnknownTransaction(f"transaction {txid} has no steps; `txsaga saga list` lists sagas")
        found = [step for step in steps if number in (None, step.number)]
        if not found:
            raise UnknownStep(txid, number)
        return found

    def _move(self, step: Step, event: StepEvent, who: str, why: str) -> Step:
        require_reason(why)
        with (
            self._kernel.announce.around(facts.Skipping, step.txid, about=step.name),
            self._kernel.store.ledgers.open() as ledger,
        ):
            ledger.lock(step.txid)
            if ledger.standing(step.txid) not in (Decision.ROLLBACK, Decision.COMMIT if step.forward else None):
                raise IllegalTransition(f"saga {step.txid} is not decided; roll it back first")
            if not ledger.move_step(step.txid, step.number, event, "" if event is StepEvent.RESUME else why):
                STEP.after(step.state, event)
                raise IllegalTransition(f"step {step.number} of saga {step.txid} has changed meanwhile; check it again")
            ledger.record(step.txid, WORDS[event], who=who, why=f"step {step.number} {step.name!r}: {why}")
        return step
