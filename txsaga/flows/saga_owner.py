"""
What the owner of one saga has in the store: its transaction record, its steps, its decision.

A step is written before it runs; its result is written with the next step or the decision: until then only its resource
has it. The first step of a saga without a key begins it. If no decision is written, another driver takes over once the
owner is silent, and rolls it back.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from txsaga.core import facts
from txsaga.core.decision import Decision
from txsaga.core.kernel import Kernel
from txsaga.core.lifecycle import TxEvent
from txsaga.core.records import Doubt, Group, Row, TxRecord
from txsaga.core.retry import patiently
from txsaga.errors import DecidedOtherwise, EffectConflict, OutcomeUnknown, Superseded
from txsaga.flows.calls import DecisionRequest, Mark, OpenSaga, RecordStep, Settle, Start
from txsaga.flows.saga_values import ClaimedSaga
from txsaga.flows.step import Left, StepEvent, StepRecord, StepState
from txsaga.messages.decide import DecidedBy
from txsaga.messages.tx_records import TxRecords

if TYPE_CHECKING:
    from txsaga.messages.ledger_store import Ledger


PART = 1
"""The part number of a block's one contribution; its attempt is the owner."""
NEVER = datetime.min.replace(tzinfo=UTC)


class SagaOwner:
    """The owner of one saga."""

    def __init__(self, kernel: Kernel, group: Group, *, key: str | None, run: str | None) -> None:
        self._kernel, self._group, self._key, self._run = kernel, group, key, run
        self._lives, self._lock = TxRecords(kernel), threading.Lock()
        self._marks: list[Mark] = []
        self.steps: dict[int, SagaStep] = {}
        self.life: TxRecord | None = None

    def enter(self) -> None:
        """Open the key, once everything earlier under it is undone (R6)."""
        if self._key is None:
            return
        self._hold(self._lives.enter(self._group, self._key, self._run))

    def opened(self) -> TxRecord:
        """Return the transaction record, opening one if there is none yet."""
        with self._lock:
            return self.life or self._hold(self._lives.open_unkeyed(self._group, self._run))

    def number(self) -> int:
        """Return the next step's number: steps are undone in reverse order of these."""
        with self._lock:
            number = len(self.steps) + 1
            self.steps[number] = SagaStep()
            return number

    def record(self, start: Start) -> None:
        """Write a step and the results before it."""
        self.steps[start.number].start = start
        with self._lock:
            if self.life is None:
                self._begin(start)
                return
            life, marks = self.life, self._taken()
        self._kernel.steps.call(RecordStep(life, [start], marks))

    def finish(self, number: int, output: str | None) -> None:
        """Note that a step is done; it is written with the next call."""
        step = self.steps[number]
        step.state, step.left, step.output = StepState.DONE, Left.WORK, output
        self._mark(number, StepEvent.FINISH, Left.WORK, output, "")

    def drop(self, number: int) -> None:
        """Note that a step never ran, because writing it failed."""
        step = self.steps[number]
        step.left, step.error = Left.NOTHING, "it did not begin"
        if self.life is None:
            step.start = None

    def fail(self, number: int, left: Left, why: str) -> None:
        """Note that a step failed, and what it is known to have left."""
        step = self.steps[number]
        step.state, step.left, step.error = StepState.FAILED, left, why
        self._mark(number, StepEvent.FAIL, left, None, why)

    def add(self, rows: Sequence[Row]) -> None:
        """Store messages ahead of the decision."""
        life = self.opened()
        with self._kernel.announce.around(facts.Adding, life.txid), self._kernel.store.ledgers.open() as ledger:
            self._lives.hold(ledger, life)
            ledger.add(life, PART, rows)
            ledger.win(life.txid, PART, life.owner)

    def decide(
        self, decision: Decision, why: str, rows: Sequence[Row] = (), behind: Sequence[Start] = ()
    ) -> tuple[Decision, ClaimedSaga]:
        """Write the decision with all that belongs to it; return the final one and the saga to drive."""
        life = self.life or self.opened()
        self._kernel.tell_hooks(self._group, life, decision, why)
        word = DecisionRequest(life, decision, f"owner {life.owner}", why, rows)
        with self._lock:
            marks = self._taken()
        try:
            standing = self._kernel.steps.call(Settle(word, self._kernel.member, behind, marks))
        except EffectConflict:
            self._decide_with_effects(word, behind)
            standing = self._kernel.steps.call(Settle(word, self._kernel.member))
        assert isinstance(standing, Decision)
        return standing, ClaimedSaga(life.txid, life.group, life.owner, standing, life.key)

    def records(self, behind: Sequence[Start] = ()) -> list[StepRecord]:
        """Return the steps as the store has them after the decision."""
        known = [step.record(self.life) for step in self.steps.values() if step.start is not None]
        return [*known, *(SagaStep(start=start).record(self.life) for start in behind)]

    def leave(self) -> None:
        """Let others ask about the saga from here on."""
        self._kernel.running.end(self)
        if self.life is not None:
            self._kernel.running.leave(self.life.txid, self.life.owner)

    def _begin(self, step: Start) -> None:
        begun = self._kernel.steps.call(OpenSaga(self._group.id, [step], self._run))
        assert isinstance(begun, TxRecord)
        self._hold(begun)

    def _taken(self) -> list[Mark]:
        marks, self._marks = self._marks, []
        return marks

    def _hold(self, life: TxRecord) -> TxRecord:
        self.life = life
        self._kernel.running.begin(self, Doubt.of(life))
        self._kernel.running.drive(life.txid, life.owner)
        return life

    def _mark(self, number: int, event: StepEvent, left: Left, output: str | None, error: str) -> None:
        assert self.life is not None
        with self._lock:
            self._marks.append(Mark(self.life.txid, self.life.owner, number, event, left, output, error))

    def _decide_with_effects(self, word: DecisionRequest, behind: Sequence[Start]) -> None:
        """Decide bound effects by the decider; the steps after the decision are written first."""
        if behind and word.decision is Decision.COMMIT:
            self._kernel.steps.call(RecordStep(word.life, behind))
        try:
            self._apply(word)
        except OutcomeUnknown:
            patiently(lambda: self._apply(word))

    def _apply(self, word: DecisionRequest) -> None:
        assert word.decision is not None
        life, by = word.life, DecidedBy(who=word.who, why=word.why, owner=word.life.owner)
        with self._kernel.announce.around(facts.Deciding, life.txid), self._kernel.store.ledgers.open() as ledger:
            current = ledger.lock(life.txid)
            if current is not None and current.owner != life.owner:
                raise Superseded(life.txid)
            try:
                if word.decision is Decision.COMMIT:
                    self._end(ledger, word)
                self._kernel.decider.within(ledger, life.txid, word.decision, by)
            except DecidedOtherwise:
                return  # the store returns the final decision

    def _end(self, ledger: Ledger, word: DecisionRequest) -> None:
        self._lives.own(ledger, word.life)
        if word.rows:
            ledger.add(word.life, PART, word.rows)
        ledger.win(word.life.txid, PART, word.life.owner)
        ledger.move(word.life.txid, TxEvent.SEAL)


class SagaStep:
    """What this process knows of one step."""

    __slots__ = ("error", "left", "output", "start", "state")

    def __init__(self, start: Start | None = None) -> None:
        self.start, self.state, self.left = start, StepState.STARTED, Left.UNKNOWN
        self.output: str | None = None
        self.error = ""

    @property
    def failed(self) -> bool:
        """Return whether it failed."""
        return self.state is StepState.FAILED

    def record(self, life: TxRecord | None) -> StepRecord:
        """Return it as the store keeps it after ROLLBACK; only the store knows the times."""
        assert life is not None and self.start is not None
        start = self.start
        words = (start.resource, start.input, start.compensation, start.action, self.output)
        state = StepState.STARTED if start.action else StepState.COMPENSATING
        named = (life.txid, start.number, start.name, life.owner, state, start.kind)
        return StepRecord(*named, *words, self.left, self.error, 0, None, NEVER)
