"""
The driver of a decided saga: after ROLLBACK it undoes steps, after COMMIT it runs those that only go forward.

Steps are undone one after the other, in reverse order of their start, even if they ran in parallel. The caller's
process drives while it lives, another one once its lease has run out, with the same code. Each step's turn:

    it has no compensation, or left nothing      nothing is done, and that is recorded
    it is unknown whether it was done            its resource is asked: what was not done is fenced for ever (R6);
                                                 without a resource its compensation runs once no process is in the step
    its compensation was done before             its row in the resource shows that
    its compensation fails                       retried with growing pauses; then it waits for an operator
    its code is not registered here              left to a process that has it

If a driver dies at any point, its lease runs out and the next one goes on: what is not marked is requested again.

Held work of a flow leaves only what its lane has committed on its own. A lane's commit that may not have reached its
resource is finished first, or a compensation would look for rows that appear later.

Recovery takes over sagas whose driver is gone. An undecided one is rolled back, as its owner would have done (R6): it
was never closed, so no process may commit it (R1). Any number of copies may run: each saga is claimed by one. If it
never runs, the steps of dead processes stay as they are, and their keys stay closed.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from itertools import starmap
from operator import attrgetter

from txsaga import errors
from txsaga.checkback.heartbeat import at_work
from txsaga.checkback.profile import LEASE
from txsaga.consume.dead_letter import short_cause
from txsaga.core import facts
from txsaga.core.decision import Decision
from txsaga.core.kernel import Kernel
from txsaga.core.lifecycle import TxState
from txsaga.core.records import TxRecord
from txsaga.core.role_loop import Pace
from txsaga.core.stored_json import as_json
from txsaga.evidence.ports import Ran
from txsaga.flows.actions import LONGEST_PAUSE, Action
from txsaga.flows.branch import BranchId, Finish
from txsaga.flows.owner import decided
from txsaga.flows.recovery import Recovery
from txsaga.flows.requests import ClaimedSaga, Close, Decide, Mark, Release
from txsaga.flows.step import Left, Step, StepEvent, StepKind, StepState, Unit, lane_unit, last_attempts
from txsaga.flows.step_execution import StepActions, Turn
from txsaga.resources.participant import Participant

logger = logging.getLogger("txsaga")

BUSY, STILL, MISSING = 0.2, 2.0, timedelta(seconds=5)
"""First and longest pause for a running step; delay for code or a resource not known here."""
LINGER = 0.25
"""Seconds that a mark may wait for the next one, if the resource itself has the evidence."""


class _StillRunning(Exception):
    """It is not known yet what a step leaves behind."""


AWAY = (_StillRunning, errors.StoreUnavailable, errors.StoreBusy, errors.OutcomeUnknown, errors.NotPrimary)

PATIENCE = 30.0
"""Seconds that a caller waits for what is busy."""
LOOK = 0.2
"""Seconds between two looks whether another driver has finished."""


class SagaDriver:
    """Drives one saga to its end; what is busy is waited for until a moment of the monotonic clock."""

    def __init__(self, kernel: Kernel, saga: ClaimedSaga, until: float = 0.0) -> None:
        self._kernel, self._saga, self._until = kernel, saga, until
        self._acting = StepActions(kernel)
        self._transaction = kernel.store.registry.identity.transaction(saga.txid)
        self._marks: list[Mark] = []
        self._flush_at = time.monotonic() + LINGER

    def drive(self, steps: Sequence[Step]) -> None:
        """Do what is left; `NotCompensated` if another process has to go on later."""
        back = self._saga.decision is Decision.ROLLBACK
        todo = sorted(
            (step for step in steps if step.waits and step.forward is not back), reverse=back, key=attrgetter("number")
        )
        running, saga = self._kernel.running, self._saga
        running.drive(saga.txid, saga.owner)
        try:
            for step in todo:
                if step.state is StepState.COMPENSATION_FAILED:
                    raise self._stalled(step, step.error)
                self._through(step, back=back)
            marks, self._marks = self._marks, []
            self._kernel.requests.call(Close(saga.txid, saga.owner, marks))
        finally:
            running.leave(saga.txid, saga.owner)

    def _through(self, step: Step, *, back: bool) -> None:
        """Work on one step until it is done, or another process must go on."""
        action, tries, away = _action(step), step.tries, 0
        turn = Turn(self._transaction, self._saga.txid, self._saga.group, step.number, step.name, back)
        while True:
            try:
                if back:
                    self._undo(turn, step, action)
                else:
                    self._do(turn, step, action)
                break
            except (errors.CodeMissing, errors.ResourceUnknown, errors.ConfigError) as missing:
                self._rest(MISSING, str(missing))
            except AWAY as busy:  # nothing was tried, so no attempt is counted
                away += 1
                longest = STILL if isinstance(busy, _StillRunning) else LONGEST_PAUSE
                self._pause(min(BUSY * 2.0 ** min(away - 1, 60), longest), str(busy))
            except Exception as error:  # noqa: BLE001  # any error of the user's code is one try
                tries += 1
                self._failed(step, action, tries, error)
        if action is None or action.resource is None or time.monotonic() > self._flush_at:
            self._flush()  # if this fails, what was done here is not repeated here

    def _undo(self, turn: Turn, step: Step, action: Action | None) -> None:
        with self._kernel.announce.around(facts.Compensating, turn.txid, about=step.name):
            left, output = self._left(turn, step)
            if action is None or left is Left.NOTHING:
                why = "it has no compensation" if action is None else "it left nothing"
                self._mark(step, StepEvent.UNDO, left=left, error=why)
                return
            if action.resource is None:
                self._flush()  # earlier compensations are recorded before this one begins
            given = json.loads(step.input) if action.input is None else action.input
            with suppress(errors.AnswerLost):  # it is undone, and its answer is not used
                self._act(turn, action, given, None if output is None else json.loads(output))
        self._mark(step, StepEvent.UNDO, left=left)

    def _left(self, turn: Turn, step: Step) -> tuple[Left, str | None]:
        """Find out what a step left behind, if that can be known."""
        if step.kind is StepKind.HELD:
            return self._held(step), None
        if step.left is not Left.UNKNOWN:
            return step.left, step.output
        if step.evidence is None or step.kind not in (StepKind.CALL, StepKind.SQL):
            self._require_nobody_in(step)
            return step.left, step.output
        work, row = self._kernel.resource(step.evidence)[1].steps, f"step:{step.number}"
        with self._kernel.announce.around(facts.Fencing, turn.txid, about=step.name):
            done = work.fence(turn.transaction, row)
        if done is None:
            raise _StillRunning(f"step {step.name!r} is still running")
        if not done:
            return Left.NOTHING, None
        return Left.WORK, work.output(turn.transaction, row)

    def _require_nobody_in(self, step: Step) -> None:
        who = at_work(self._kernel, step.txid, step.name)
        if who is not None:
            raise _StillRunning(
                f"{who} is still at work in step {step.name!r}; it is undone once that ends, or once that process has "
                f"been silent for {LEASE.total_seconds():.0f} s"
            )

    def _held(self, step: Step) -> Left:
        try:
            return left_of(self._kernel, step)
        except (errors.RetryLater, errors.ResourceManagerFailed) as busy:
            raise _StillRunning(f"the outcome of step {step.name!r} is not known yet: {busy}") from busy

    def _do(self, turn: Turn, step: Step, action: Action | None) -> None:
        assert action is not None
        output = action.options.get("output")  # of the try that is confirmed
        try:
            kept = _kept(step, self._act(turn, action, json.loads(step.input), output))
        except errors.AnswerLost as lost:
            logger.warning("%s of transaction %d is done, its result is not stored: %s", _what(step), step.txid, lost)
            kept = None
        self._mark(step, StepEvent.FINISH, left=Left.WORK, output=kept)

    def _act(self, turn: Turn, action: Action, given: Mapping[str, object], output: object) -> Ran:
        """Execute a step, unless an earlier driver is still in it: its row would be waited for without limit."""
        if self._saga.owner > 1 and action.resource is not None:
            if self._kernel.resource(action.resource)[1].steps.is_running(turn.transaction, turn.row):
                raise _StillRunning(f"step {turn.name!r} is still running in another process")
        return self._acting.do(turn, action, given, output=output)

    def _failed(self, step: Step, action: Action | None, tries: int, error: Exception) -> None:
        why = short_cause(f"{type(error).__name__}: {error}")
        self._mark(step, None, error=why, tries=1)
        if action is not None and action.retries is not None and tries > action.retries:
            self._mark(step, StepEvent.GIVE_UP, error=why)
            raise self._stalled(step, why) from error
        pause = 1.0 if action is None else action.pause_before(tries, self._kernel.jitter())
        logger.warning("%s of transaction %d failed, next attempt in %.1f s: %s", _what(step), step.txid, pause, why)
        self._flush()
        self._pause(pause, why)

    def _pause(self, seconds: float, why: str) -> None:
        if time.monotonic() + seconds > self._until:
            self._rest(timedelta(seconds=seconds), why)
        time.sleep(seconds)

    def _stalled(self, step: Step, why: str) -> errors.CompensationFailed:
        """Leave the saga to an operator."""
        told = f"{_what(step)} ran out of retries ({why})"
        logger.error("saga %d is stalled: %s; see `txsaga saga show %d`", step.txid, told, step.txid)
        self._let_go(timedelta(0), told, stalled=True)
        return errors.CompensationFailed(step.txid, f"{told}; resume or skip it with `txsaga saga`")

    def _rest(self, by: timedelta, why: str) -> None:
        self._let_go(by, why)
        raise errors.NotCompensated(self._saga.txid, why)

    def _let_go(self, by: timedelta, why: str, *, stalled: bool = False) -> None:
        marks, self._marks = self._marks, []
        with suppress(errors.TxSagaError):  # otherwise its lease runs out
            self._kernel.requests.call(Release(self._saga.txid, self._saga.owner, by, why, stalled, marks))

    def _mark(
        self,
        step: Step,
        event: StepEvent | None,
        *,
        left: Left | None = None,
        output: str | None = None,
        error: str = "",
        tries: int = 0,
    ) -> None:
        mark = Mark(self._saga.txid, self._saga.owner, step.number, event, left, output, error, tries)
        if any(each.number == step.number for each in self._marks):
            self._flush()  # one statement moves a step only once
        self._marks.append(mark)

    def _flush(self) -> None:
        marks, self._marks = self._marks, []
        for mark in marks[:-1]:
            self._kernel.requests.submit(mark)
        if marks:
            self._kernel.requests.call(marks[-1])
        self._flush_at = time.monotonic() + LINGER


def _action(step: Step) -> Action | None:
    text = step.action if step.forward else step.compensation
    return None if text is None else Action.read(text)


def _kept(step: Step, ran: Ran) -> str | None:
    """Return a step's result as JSON. The step is done: a result that can't be stored does not repeat it."""
    if ran.output is None or (isinstance(ran.output, list) and step.kind is StepKind.SQL):
        return None
    try:
        return as_json(ran.output, f"what step {step.name!r} returned")
    except errors.ConfigError as unkept:
        raise errors.AnswerLost(str(unkept)) from unkept


def _what(step: Step) -> str:
    return f"{'step' if step.forward else 'the compensation of step'} {step.number} {step.name!r}"


LEFT = {Finish.ROLLED_BACK: Left.NOTHING, Finish.HAZARD: Left.UNKNOWN}


def left_of(kernel: Kernel, step: Step) -> Left:
    """Return what a step's held work has left in its resource."""
    with kernel.store.ledgers.open() as ledger:
        steps, units = ledger.flows.steps(step.txid), ledger.flows.units(step.txid)
    unit = lane_unit(step, units)
    if unit is None or unit.decision is Decision.ROLLBACK:
        return Left.NOTHING
    participant = kernel.reach(unit.resource)
    if unit.decision is Decision.COMMIT:
        return _told(kernel, step, participant, steps, unit) if participant.capabilities.two_phase else Left.WORK
    if unit.branch is None or participant.capabilities.two_phase:
        return Left.NOTHING
    return _committed_unheard(kernel, step.txid, participant, unit)


def _told(kernel: Kernel, step: Step, participant: Participant, steps: Sequence[Step], unit: Unit) -> Left:
    """Commit in the resource what its lane committed; a branch rolled back there by hand has left nothing."""
    found: dict[BranchId, Finish] = {}
    for branch in _branches(kernel, step.txid, steps, unit):
        with kernel.announce.around(facts.Finishing, step.txid, about=participant.name):
            found[branch] = participant.finish(branch, Decision.COMMIT)
    place = (step.branch, step.attempt) if step.holds_locks else (unit.branch, unit.attempt)
    mine = [finish for branch, finish in found.items() if (branch.number, branch.attempt) == place]
    return LEFT.get(mine[0], Left.WORK) if mine else Left.WORK


def _branches(kernel: Kernel, txid: int, steps: Sequence[Step], unit: Unit) -> list[BranchId]:
    """Return the branches that the unit's decision committed: those of its steps, and the journal's last run."""
    transaction = kernel.store.registry.identity.transaction(txid)
    held = [step for step in last_attempts(steps) if step.holds_locks and step.lane]
    found = [(step.branch or 0, step.attempt) for step in held if (step.resource, step.unit) == unit.place]
    if unit.branch is not None:
        found.append((unit.branch, unit.attempt))
    return [BranchId(transaction, *each) for each in found]


def _committed_unheard(kernel: Kernel, txid: int, participant: Participant, unit: Unit) -> Left:
    """Find a one-phase commit whose answer was lost, and fence one that is late."""
    transaction, found = kernel.store.registry.identity.transaction(txid), Left.NOTHING
    for attempt in range(1, unit.attempt + 1):
        with kernel.announce.around(facts.Fencing, txid, about=participant.name):
            if participant.fence(BranchId(transaction, unit.branch or 0, attempt)) is Finish.COMMITTED:
                found = Left.WORK
    return found


def drive(kernel: Kernel, saga: ClaimedSaga, steps: Sequence[Step] | None = None) -> None:
    """Drive a decided saga to its end, waiting for what is busy; its steps are read unless they are given."""
    driver = SagaDriver(kernel, saga, time.monotonic() + PATIENCE)
    driver.drive(kernel.store.work.steps(saga.txid) if steps is None else steps)


def undo(kernel: Kernel, life: TxRecord) -> None:
    """Undo completely a flow that this owner rolled back; `NotCompensated` if another process has to go on."""
    if not any(step.waits for step in kernel.store.work.steps(life.txid)):
        return
    try:
        kernel.requests.call(Decide(life, Decision.ROLLBACK, f"owner {life.owner}", "", driver=kernel.member))
    except errors.Superseded:
        wait_until_undone(kernel, life.txid)
        return
    drive(kernel, ClaimedSaga(life.txid, life.group, life.owner, Decision.ROLLBACK, life.key))


def undo_after(kernel: Kernel, life: TxRecord, error: BaseException) -> None:
    """Undo a flow, and add what is left of it as a note to an error that is raised anyway."""
    try:
        undo(kernel, life)
    except errors.TxSagaError as left:
        error.add_note(str(left))
        logger.warning("flow %d is not completely undone: %s", life.txid, left, extra={"txid": life.txid})


def wait_until_undone(kernel: Kernel, txid: int) -> None:
    """Wait until a flow that was rolled back is undone, taking over if its driver is gone."""
    end = time.monotonic() + PATIENCE
    while True:
        with kernel.store.ledgers.open() as ledger:
            if not ledger.has_open_saga(txid):
                return
        with kernel.announce.around(facts.Claiming, txid):
            taken = kernel.store.work.claim(kernel.member, limit=1, txid=txid)
        for saga in taken:
            drive(kernel, saga)
        if not taken:
            for view in kernel.store.work.sagas(txid=txid):
                if view.stalled:
                    raise errors.CompensationFailed(txid, f"{view.why}; resume or skip it with `txsaga saga`")
            if time.monotonic() + LOOK > end:
                raise errors.NotCompensated(txid, "another process is undoing it")
            time.sleep(LOOK)


WHY = "the owner is gone and did not seal it"


class SagaRecovery:
    """The part of recovery that takes over sagas and drives them to their end."""

    name = Recovery.name
    pace = Pace(0.1, 0.5)
    LIMIT, THREADS = 200, 8

    def __init__(self, kernel: Kernel, *, threads: int = THREADS) -> None:
        self._kernel, self._threads = kernel, threads

    def run_once(self) -> int:
        """Take over sagas without a driver; return how many reached their end."""
        with self._kernel.announce.around(facts.Claiming):
            taken = self._kernel.store.work.claim(self._kernel.member, limit=self.LIMIT)
        if not taken:
            return 0
        if left := [saga.txid for saga in taken if saga.decision is None]:
            logger.warning("%d sagas are rolled back because %s: %s", len(left), WHY, ", ".join(map(str, left)))
        steps = self._kernel.store.work.steps_of([saga.txid for saga in taken])
        todo = [(saga, steps.get(saga.txid, ())) for saga in taken]
        if len(taken) == 1 or self._threads == 1:
            return sum(starmap(self._driven, todo))
        with ThreadPoolExecutor(self._threads, thread_name_prefix="txsaga-recovery") as pool:
            return sum(pool.map(lambda each: self._driven(*each), todo))

    def _driven(self, saga: ClaimedSaga, steps: Sequence[Step]) -> bool:
        try:
            decided = saga if saga.decision is not None else self._rolled_back(saga)
            SagaDriver(self._kernel, decided).drive(steps)
        except errors.NotCompensated as left:
            logger.warning("%s", left, extra={"txid": saga.txid})
            return False
        except errors.TxSagaError as failure:
            logger.warning("saga %d is left to another process: %s", saga.txid, failure, extra={"txid": saga.txid})
            return False
        return True

    def _rolled_back(self, saga: ClaimedSaga) -> ClaimedSaga:
        # As much of its record as a decision needs.
        life = TxRecord(
            txid=saga.txid, group=saga.group, token=b"", key=saga.key, epoch=1, owner=saga.owner, state=TxState.ACTIVE
        )
        request = Decide(life, Decision.ROLLBACK, self.name, WHY, driver=self._kernel.member)
        standing = decided(self._kernel, request)
        self._kernel.tell_decided()
        return saga._replace(decision=standing)
