"""
What an operator does with a stalled saga: resume the step that is out of retries, or skip it.

Who did it and why is written in the same commit. It drives nothing: the role does, at once. Skipping undoes nothing:
the operator has made sure that nothing is left to undo.
"""

from __future__ import annotations

from collections.abc import Sequence

from txsaga.checkback.by_hand import require_reason
from txsaga.core import facts
from txsaga.core.decision import Decision
from txsaga.core.kernel import Kernel
from txsaga.errors import IllegalTransition, UnknownStep, UnknownTransaction
from txsaga.flows.step import STEP, StepEvent, StepRecord, StepState

WORDS = {StepEvent.RESUME: "STEP RESUMED", StepEvent.SKIP: "STEP SKIPPED"}


class SagasByHand:
    """An operator's actions on sagas."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def resume(self, txid: int, *, who: str, why: str, number: int | None = None) -> Sequence[StepRecord]:
        """Have the steps that are out of retries, or one of them, retried; return them."""
        steps = self._steps(txid, number)
        found = [step for step in steps if step.state is StepState.COMPENSATION_FAILED]
        if not found:
            raise IllegalTransition(f"no step of saga {txid} is out of retries; nothing is to be resumed")
        return [self._move(step, StepEvent.RESUME, who, why) for step in found]

    def skip(self, txid: int, number: int, *, who: str, why: str) -> StepRecord:
        """Leave a step as it is; return it."""
        (step,) = self._steps(txid, number)
        if step.state is StepState.STARTED and not step.forward:
            raise IllegalTransition(f"step {number} of saga {txid} is not to be compensated; roll the saga back first")
        return self._move(step, StepEvent.SKIP, who, why)

    def _steps(self, txid: int, number: int | None) -> Sequence[StepRecord]:
        steps = self._kernel.store.steps.of(txid)
        if not steps:
            raise UnknownTransaction(f"transaction {txid} has no steps; `txsaga saga list` shows what has")
        found = [step for step in steps if number in (None, step.number)]
        if not found:
            raise UnknownStep(txid, number)
        return found

    def _move(self, step: StepRecord, event: StepEvent, who: str, why: str) -> StepRecord:
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
                raise IllegalTransition(f"step {step.number} of saga {step.txid} has moved meanwhile; look again")
            ledger.record(step.txid, WORDS[event], who=who, why=f"step {step.number} {step.name!r}: {why}")
        return step
