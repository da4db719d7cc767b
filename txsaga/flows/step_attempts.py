"""
The attempts of a step in the store: each begins by superseding the one before it, and ends with one row (R4).

A branch is named before its work (R9), in the commit that supersedes, which also decides ROLLBACK for everything that
an earlier attempt prepared; recovery finishes that if this process can't. If the end of a step is never written, the
step was never done; its next attempt replaces this one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from txsaga.checkback.heartbeat import AT_WORK, place_of
from txsaga.consume.dead_letter import short_cause
from txsaga.core import facts
from txsaga.core.decision import Decision
from txsaga.core.kernel import Kernel
from txsaga.core.records import Row, TxRecord
from txsaga.core.retry import patiently
from txsaga.errors import DecidedOtherwise, OutcomeUnknown, RetryLater, StepDone, Superseded, TxSagaError
from txsaga.flows.batches import noted
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.flows.flow_begin import entered, opened, require_joined
from txsaga.flows.journal import JournalEntry
from txsaga.flows.requests import NamedBranch, Start
from txsaga.flows.step import (
    MAIN,
    Application,
    Hold,
    Left,
    Step,
    StepState,
    Unit,
    last_attempts,
    open_unit,
    read_application,
)

if TYPE_CHECKING:
    from txsaga.flows.flows_store import FlowLedger
    from txsaga.messages.ledger_store import Ledger
    from txsaga.resources.participant import Participant

logger = logging.getLogger("txsaga")

PARTS = 1_000
"""Messages of a step are a contribution of their own, with part numbers after those of blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlace:
    """Where a step works, and how its work is held."""

    resource: str
    hold: Hold
    participant: Participant | None = None  # None for the home database
    recorded: int | None = None  # the number of a resource that holds work now
    lane: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """An attempt that was begun, the earlier ones, and what its flow holds in the same resource."""

    step: Step
    earlier: Sequence[Step] = ()
    held: Sequence[Step] = ()


class Attempts:
    """Begins and ends the attempts of the steps of one flow."""

    def __init__(self, kernel: Kernel, life: TxRecord) -> None:
        self._kernel, self._life = kernel, life

    def begin(self, name: str, place: StepPlace | None, declared: Start | None = None, mark: str = "") -> Begun:
        """Begin an attempt of a step, with its compensation; `StepDone` if it is not to be run again."""
        txid = self._life.txid
        with self._kernel.announce.around(facts.Starting, txid, about=name), self._kernel.store.ledgers.open() as it:
            found = entered(it, self._life)
            last = last_attempts(found.steps)
            before = next((each for each in last if each.name == name), None)
            if before is not None and before.state is StepState.DONE:
                raise StepDone(txid, name, before.attempt)  # even if a process died while it ended the flow
            require_joined(found.life)
            number = (last[-1].number if last else 0) + 1
            known = (number, 1) if before is None else (before.number, before.attempt + 1)
            step = Step(txid, *known, name, mark=mark)
            if declared is not None:
                step = _undone_by(step, declared)
            if place is not None:
                step = self._placed(it.flows, step, place, before)
            earlier = [each for each in found.steps if each.name == name and each.branch is not None]
            it.flows.settle(txid, [(each.branch or 0, each.attempt) for each in earlier], Decision.ROLLBACK)
            it.flows.start(step)
        held = [each for each in last if each.holds_locks and place is not None and each.resource == place.resource]
        return Begun(step=step, earlier=earlier, held=held)

    def done(
        self,
        step: Step,
        *,
        vote: Vote | None = None,
        entries: Sequence[JournalEntry] = (),
        rows: Sequence[Row] = (),
        also: Callable[[Ledger], None] = lambda ledger: None,
    ) -> None:
        """Write that an attempt is done, with everything it leaves behind; `also` writes more in the same commit."""

        def write() -> None:
            with self._closing(step) as (it, current):
                if current.state is StepState.DONE:
                    return  # an earlier answer was lost
                if step.branch is not None and vote is not None:
                    it.flows.hold(step.txid, (step.branch, step.attempt), vote)
                also(it)
                if rows:
                    it.add(self._life, PARTS + step.number, rows)
                    it.win(step.txid, PARTS + step.number, self._life.owner)
                it.flows.end(current.finished(mark=step.mark, output=step.output), entries)

        try:
            write()
        except OutcomeUnknown:
            patiently(write)

    def failed(self, step: Step, error: BaseException, left: Left) -> bool:
        """Write that an attempt failed, and return whether it is; if not, the next attempt or recovery finds out.

        What it may have prepared is decided ROLLBACK. An earlier attempt may still be running, or have done something:
        only the first one can know that nothing is left.
        """
        why = short_cause(f"{type(error).__name__}: {error}")
        try:
            with self._closing(step) as (it, current):
                if current.state is StepState.STARTED:
                    close_failed(it.flows, current, why, left if step.attempt == 1 else Left.UNKNOWN)
        except TxSagaError as reason:
            logger.warning("the failure of step %r of transaction %d is not recorded: %s", step.name, step.txid, reason)
            return False
        return True

    @contextmanager
    def _closing(self, step: Step) -> Iterator[tuple[Ledger, Step]]:
        with (
            self._kernel.announce.around(facts.Closing, step.txid, about=step.name),
            self._kernel.store.ledgers.open() as ledger,
        ):
            yield ledger, current_attempt(ledger, self._life, step)

    def _placed(self, flows: FlowLedger, step: Step, place: StepPlace, before: Step | None) -> Step:
        unit = self._unit(flows, place.resource) if place.lane else MAIN
        step = step._replace(resource=place.resource, hold=place.hold, lane=place.lane, unit=unit)
        if place.hold is Hold.JOURNAL or place.recorded is None:
            return step
        same = before is not None and (before.resource, before.lane) == (place.resource, place.lane)
        known = before.branch if before is not None and same else None
        return step._replace(branch=flows.name(step.txid, place.recorded, step.attempt, aux=place.lane, number=known))

    def _unit(self, flows: FlowLedger, resource: str) -> int:
        """Return the open unit of a lane; the first step of a unit opens it."""
        units = flows.units(self._life.txid)
        unit = open_unit(units, resource)
        if unit is None:
            number = max((each.number for each in units if each.resource == resource), default=MAIN) + 1
            unit = Unit(resource, number)
            flows.put(self._life.txid, unit)
        return unit.number


def _undone_by(step: Step, declared: Start) -> Step:
    undoing = step._replace(kind=declared.kind, input=declared.input, compensation=declared.compensation)
    return undoing._replace(resource=declared.resource, hold=Hold.COMMIT)


def current_attempt(ledger: Ledger, life: TxRecord, step: Step) -> Step:
    """Lock the flow, make sure that no later attempt replaced this one, and return it."""
    (last,) = [each for each in last_attempts(opened(ledger, life).steps) if each.number == step.number]
    if last.attempt != step.attempt:
        raise Superseded(life.txid)
    return last


def close_failed(flows: FlowLedger, step: Step, why: str, left: Left = Left.UNKNOWN) -> None:
    """Write that an attempt failed; what it may have prepared is decided ROLLBACK."""
    if step.branch is not None:
        flows.settle(step.txid, [(step.branch, step.attempt)], Decision.ROLLBACK)
    flows.end(step.failed(why, left))


def free(kernel: Kernel, txid: int, participant: Participant, branches: Iterable[NamedBranch]) -> None:
    """Roll back what dead processes prepared, and note it: its locks would block the work that takes its place.

    Recovery retries what a session still holds open.
    """
    for number, attempt in branches:
        branch = BranchId(kernel.store.registry.identity.transaction(txid), number, attempt)
        try:
            with kernel.announce.around(facts.Finishing, txid, about=participant.name):
                participant.finish(branch, Decision.ROLLBACK)
        except RetryLater:
            continue
        kernel.notes.add([noted(txid, branch, Decision.ROLLBACK, Finish.DONE)])


class Attempted(NamedTuple):
    """The attempt of a step that counts."""

    number: int
    state: StepState
    application: Application | None
    alive: bool  # the lease of its process has not run out
    why: str


def attempted(kernel: Kernel, txid: int, name: str) -> Attempted | None:
    """Return the last attempt of a step, if there is one; `DecidedOtherwise` once its flow is decided."""
    with kernel.store.ledgers.open() as ledger:
        standing, steps = ledger.standing(txid), ledger.flows.steps(txid, name)
    if standing is not None:
        raise DecidedOtherwise(txid, standing.name)
    if not steps:
        return None
    step = steps[-1]
    application = read_application(step.mark)
    alive = False
    if application is not None and step.state is StepState.STARTED:
        alive = place_of(txid, application.member, name) in kernel.store.leases.alive(AT_WORK).get(*AT_WORK, ())
    return Attempted(step.attempt, step.state, application, alive, step.error)
