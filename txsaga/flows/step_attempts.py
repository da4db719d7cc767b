"""
The attempts of a step in the store: each begins by superseding the one before it, and ends with one row (R4).

A branch is named before its work (R9), in the commit that supersedes, which also decides ROLLBACK for everything that
an earlier attempt prepared; recovery finishes that if this process can't. If the end of a step is never written, the
step was never done; its next attempt replaces this one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from txsaga.checkback.heartbeat import AT_WORK, place_of
from txsaga.core import facts
from txsaga.core.decision import Decision
from txsaga.core.kernel import Kernel
from txsaga.core.records import Row, TxRecord
from txsaga.core.retry import patiently
from txsaga.errors import DecidedOtherwise, OutcomeUnknown, StepDone, Superseded
from txsaga.flows.branch import Vote
from txsaga.flows.calls import Start
from txsaga.flows.declaration import Hold
from txsaga.flows.flow_begin import entered, require_joined
from txsaga.flows.journal import JournalEntry
from txsaga.flows.step import Left
from txsaga.flows.step import StepEvent as DeclaredEvent
from txsaga.flows.step_records import (
    FLOW_STEP,
    HOME,
    MAIN,
    PARTS,
    Application,
    FlowStep,
    FlowStepEvent,
    FlowStepState,
    FlowUnit,
    Journalled,
    last_attempts,
    open_unit,
    read_application,
)

if TYPE_CHECKING:
    from txsaga.flows.flows_store import FlowLedger
    from txsaga.messages.ledger_store import Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlace:
    """Where a step works, and how its work is held."""

    resource: str
    recorded: int | None  # the number of the resource; None for the home database
    hold: Hold
    lane: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """An attempt that was begun, the earlier ones, and what its flow holds in the same resource."""

    step: FlowStep
    earlier: Sequence[FlowStep]
    held: Sequence[FlowStep]


class Attempts:
    """Begins and ends the attempts of the steps of one flow."""

    def __init__(self, kernel: Kernel, life: TxRecord) -> None:
        self._kernel, self._life = kernel, life
        self.also: Callable[[Ledger], None] = lambda ledger: None
        """Writes further rows in the commit that ends a step."""

    def begin(self, name: str, place: StepPlace | None, declared: Start | None = None, mark: str = "") -> Begun:
        """Begin an attempt of a step, with its compensation; `StepDone` if it is not to be run again."""
        txid = self._life.txid
        with self._kernel.announce.around(facts.Starting, txid, about=name), self._kernel.store.ledgers.open() as it:
            found = entered(it, self._life)
            current, steps = found.life, found.steps
            tried = [step for step in steps if step.name == name]
            if tried and tried[-1].state is FlowStepState.DONE:
                raise StepDone(txid, name, tried[-1].attempt)  # even if a process died while it ended the flow
            require_joined(current)
            step = self._next(it.flows, name, place, steps, tried)._replace(mark=mark)
            earlier = [each for each in tried if each.branch is not None]
            it.flows.settle(txid, [(each.branch or 0, each.attempt) for each in earlier], Decision.ROLLBACK)
            it.flows.start(txid, step)
            if declared is not None:
                it.flows.declare(txid, declared._replace(number=step.number), step.attempt)
        held = [each for each in last_attempts(steps) if each.holds_locks and place and each.resource == place.resource]
        return Begun(step=step, earlier=earlier, held=held)

    def done(
        self,
        step: FlowStep,
        *,
        vote: Vote | None,
        entries: Sequence[JournalEntry],
        rows: Sequence[Row],
        output: str | None = None,
    ) -> None:
        """Write that an attempt is done, with everything it leaves behind."""
        try:
            self._done(step, vote, entries, rows, output)
        except OutcomeUnknown:
            patiently(lambda: self._done(step, vote, entries, rows, output))

    def failed(self, step: FlowStep, why: str, left: Left = Left.UNKNOWN) -> None:
        """Write that an attempt failed; what it may have prepared is decided ROLLBACK."""
        txid = self._life.txid
        with (
            self._kernel.announce.around(facts.Closing, txid, about=step.name),
            self._kernel.store.ledgers.open() as it,
        ):
            if current_attempt(it, self._life, step).state is FlowStepState.STARTED:
                close_failed(it.flows, txid, step, why, left)

    def _done(
        self,
        step: FlowStep,
        vote: Vote | None,
        entries: Sequence[JournalEntry],
        rows: Sequence[Row],
        output: str | None,
    ) -> None:
        txid = self._life.txid
        with (
            self._kernel.announce.around(facts.Closing, txid, about=step.name),
            self._kernel.store.ledgers.open() as it,
        ):
            if current_attempt(it, self._life, step).state is FlowStepState.DONE:
                return  # an earlier answer was lost
            if step.branch is not None and vote is not None:
                it.flows.hold(txid, (step.branch, step.attempt), vote)
            self.also(it)
            if rows:
                it.add(self._life, PARTS + step.number, rows)
                it.win(txid, PARTS + step.number, self._life.owner)
            resource = step.resource or HOME
            journal = [Journalled(step.number, at, resource, step.unit, *each) for at, each in enumerate(entries, 1)]
            done = step._replace(state=FLOW_STEP.after(FlowStepState.STARTED, FlowStepEvent.FINISH))
            it.flows.finish(txid, done, journal, output)

    def _next(
        self,
        flows: FlowLedger,
        name: str,
        place: StepPlace | None,
        steps: Sequence[FlowStep],
        tried: Sequence[FlowStep],
    ) -> FlowStep:
        last = tried[-1] if tried else None
        number = last.number if last else max((each.number for each in steps), default=0) + 1
        step = FlowStep(number, name, last.attempt + 1 if last else 1, FlowStepState.STARTED, None, None)
        if place is None:
            return step
        unit = self._unit(flows, place.resource) if place.lane else MAIN
        step = step._replace(resource=place.resource, hold=place.hold, lane=place.lane, unit=unit)
        if place.hold is Hold.JOURNAL or place.recorded is None:
            return step
        same = last is not None and (last.resource, last.lane) == (place.resource, place.lane)
        known = last.branch if last is not None and same else None
        txid, attempt = self._life.txid, step.attempt
        return step._replace(branch=flows.name(txid, place.recorded, attempt, aux=place.lane, number=known))

    def _unit(self, flows: FlowLedger, resource: str) -> int:
        """Return the open unit of a lane; the first step of a unit opens it."""
        units = flows.units(self._life.txid)
        unit = open_unit(units, resource)
        if unit is None:
            number = max((each.number for each in units if each.resource == resource), default=MAIN) + 1
            unit = FlowUnit(resource, number)
            flows.put(self._life.txid, unit)
        return unit.number


def current_attempt(ledger: Ledger, life: TxRecord, step: FlowStep) -> FlowStep:
    """Lock the flow, and make sure that no later attempt replaced this one."""
    found = entered(ledger, life)
    require_joined(found.life)
    (last,) = [each for each in last_attempts(found.steps) if each.number == step.number]
    if last.attempt != step.attempt:
        raise Superseded(life.txid)
    return last


def close_failed(flows: FlowLedger, txid: int, step: FlowStep, why: str, left: Left = Left.UNKNOWN) -> None:
    """Write that an attempt failed; what it may have prepared is decided ROLLBACK."""
    if step.branch is not None:
        flows.settle(txid, [(step.branch, step.attempt)], Decision.ROLLBACK)
    flows.close(txid, step._replace(state=FLOW_STEP.after(FlowStepState.STARTED, FlowStepEvent.FAIL), why=why))
    flows.mark(txid, step.number, DeclaredEvent.FAIL, left, None, why)


class Attempted(NamedTuple):
    """The attempt of a step that counts."""

    number: int
    state: FlowStepState
    application: Application | None
    alive: bool  # the lease of its process has not run out
    why: str


def attempted(kernel: Kernel, txid: int, name: str) -> Attempted | None:
    """Return the last attempt of a step, if there is one; `DecidedOtherwise` once its flow is decided."""
    with kernel.store.ledgers.open() as ledger:
        standing, steps = ledger.standing(txid), last_attempts(ledger.flows.steps(txid, name))
    if standing is not None:
        raise DecidedOtherwise(txid, standing.name)
    if not steps:
        return None
    (step,) = steps
    application = read_application(step.mark)
    alive = (
        application is not None and step.state is FlowStepState.STARTED and _is_alive(kernel, txid, name, application)
    )
    return Attempted(step.attempt, step.state, application, alive, step.why)


def _is_alive(kernel: Kernel, txid: int, name: str, application: Application) -> bool:
    return place_of(txid, application.member, name) in kernel.store.leases.alive(AT_WORK).get(*AT_WORK, ())
