"""
The steps of one saga as its owner knows them: their numbers, their results, and what failed ones left.

A step is written before it runs; its result is written with the next step or the decision: until then only its resource
has it. The first step of a saga without a key begins it. If no decision is written, another driver takes over once the
owner is silent, and rolls it back.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime

from txsaga.core.decision import Decision
from txsaga.core.kernel import Kernel
from txsaga.core.records import Row, TxRecord
from txsaga.flows.owner import Owner
from txsaga.flows.requests import Mark, RecordSteps, Start
from txsaga.flows.saga_values import ClaimedSaga
from txsaga.flows.step import Left, StepEvent, StepRecord, StepState

NEVER = datetime.min.replace(tzinfo=UTC)


class SagaStep:
    """What this process knows of one step."""

    __slots__ = ("error", "left", "output", "start", "state")

    def __init__(self, start: Start | None = None) -> None:
        self.start, self.state, self.left = start, StepState.STARTED, Left.UNKNOWN
        self.output: str | None = None
        self.error = ""

    def record(self, life: TxRecord) -> StepRecord:
        """Return it as the store keeps it after ROLLBACK; only the store knows the times."""
        assert self.start is not None
        start = self.start
        words = (start.resource, start.input, start.compensation, start.action, self.output)
        state = StepState.STARTED if start.action else StepState.COMPENSATING
        named = (life.txid, start.number, start.name, life.owner, state, start.kind)
        return StepRecord(*named, *words, self.left, self.error, 0, None, NEVER)


class SagaSteps:
    """The steps of one saga."""

    def __init__(self, kernel: Kernel, owner: Owner) -> None:
        self._kernel, self._owner, self._lock = kernel, owner, threading.Lock()
        self._marks: list[Mark] = []
        self._known: dict[int, SagaStep] = {}

    def enter(self) -> None:
        """Open the key, once everything earlier under it is undone (R6)."""
        if self._owner.key is not None:
            self._drive(self._owner.enter())

    def opened(self) -> TxRecord:
        """Return the transaction record, opening one if there is none yet."""
        with self._lock:
            return self._drive(self._owner.open()) if self._owner.txid is None else self._owner.life

    def number(self) -> int:
        """Return the next step's number: steps are undone in reverse order of these."""
        with self._lock:
            number = len(self._known) + 1
            self._known[number] = SagaStep()
            return number

    def record(self, start: Start) -> None:
        """Write a step and the results before it."""
        self._known[start.number].start = start
        with self._lock:
            if self._owner.txid is None:
                self._drive(self._owner.begin(steps=[start]))
                return
            marks, self._marks = self._marks, []
        self._kernel.requests.call(RecordSteps(self._owner.life, [start], marks))

    def finish(self, number: int, output: str | None) -> None:
        """Note that a step is done; it is written with the next call."""
        step = self._known[number]
        step.state, step.left, step.output = StepState.DONE, Left.WORK, output
        self._mark(number, StepEvent.FINISH, Left.WORK, output, "")

    def drop(self, number: int) -> None:
        """Note that a step never ran, because writing it failed."""
        step = self._known[number]
        step.left, step.error = Left.NOTHING, "it did not begin"
        if self._owner.txid is None:
            step.start = None

    def fail(self, number: int, left: Left, why: str) -> None:
        """Note that a step failed, and what it is known to have left."""
        step = self._known[number]
        step.state, step.left, step.error = StepState.FAILED, left, why
        self._mark(number, StepEvent.FAIL, left, None, why)

    def unknown(self) -> str:
        """Return which step failed and left nobody knows what; empty if none did."""
        for number, step in self._known.items():
            if step.start is not None and step.state is StepState.FAILED and step.left is not Left.NOTHING:
                return f"step {number} {step.start.name!r} failed, and what it left is not known ({step.error})"
        return ""

    def decide(
        self, decision: Decision, why: str, rows: Sequence[Row] = (), after: Sequence[Start] = ()
    ) -> ClaimedSaga:
        """Write the decision with the results and the steps after it; return the saga to drive, as it is decided."""
        life = self.opened()
        with self._lock:
            marks, self._marks = self._marks, []
        standing = self._owner.decide(decision, why, rows, driver=self._kernel.member, steps=after, marks=marks)
        return ClaimedSaga(life.txid, life.group, life.owner, standing, life.key)

    def records(self, after: Sequence[Start] = ()) -> list[StepRecord]:
        """Return the steps as the store has them after the decision."""
        known = [*self._known.values(), *(SagaStep(start) for start in after)]
        return [step.record(self._owner.life) for step in known if step.start is not None]

    def leave(self) -> None:
        """Let others ask about the saga from here on."""
        self._owner.leave()
        if self._owner.txid is not None:
            self._kernel.running.leave(self._owner.txid, self._owner.life.owner)

    def _drive(self, life: TxRecord) -> TxRecord:
        self._owner.hold()
        self._kernel.running.drive(life.txid, life.owner)
        return life

    def _mark(self, number: int, event: StepEvent, left: Left, output: str | None, error: str) -> None:
        life = self._owner.life
        with self._lock:
            self._marks.append(Mark(life.txid, life.owner, number, event, left, output, error))
