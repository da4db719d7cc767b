"""
What COMMIT or ROLLBACK would do with a transaction, in the order in which it would happen.

It is derived from what is durable, and nothing is decided by it. Rows that were not counted have no number here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from txsaga.core.decision import Decision
from txsaga.flows.actions import Action
from txsaga.flows.branch import BranchId
from txsaga.flows.step import Left, Step, StepKind, StepState, is_undone, lane_unit, last_attempts
from txsaga.inspect.trace import Trace

HOME = "home"
OUTSIDE = "outside"


class Undoable(NamedTuple):
    """One thing that can still be undone: where it is, what undoes it, and its name there."""

    number: int
    where: str
    what: str
    by: str
    reference: str


def undo_of(trace: Trace, transaction: str) -> list[Undoable]:
    """Return what can still be undone of a transaction, grouped by kind."""
    if trace.decision is Decision.COMMIT:
        return []
    found = [*_branches(trace, transaction)]
    if trace.decision is None:
        found = [*_messages(trace), *_bound(trace), *_journals(trace), *found]
    found += _steps(trace, transaction)
    return [Undoable(number, *each) for number, each in enumerate(found, 1)]


Entry = tuple[str, str, str, str]


def _messages(trace: Trace) -> Iterator[Entry]:
    for sent in trace.sent:
        what = f"{sent.messages} message{'' if sent.messages == 1 else 's'} to {sent.place}, not visible yet"
        yield HOME, what, "they stay invisible", f"part {sent.part}, attempt {sent.attempt}"
    for slot, place in trace.kept:
        yield HOME, f"a place for a late body to {place}", "it stays empty", f"slot {slot}"


def _bound(trace: Trace) -> Iterator[Entry]:
    for group, member, place, first, last in trace.bound:
        yield HOME, f"offsets {first} to {last} of {place} for group {group}", "they come again", member


def _steps(trace: Trace, transaction: str) -> Iterator[Entry]:
    for step in trace.steps:
        waits = step.waits and not step.forward and step.left is not Left.NOTHING
        if waits and step.compensation is not None and not is_undone(step, trace.units):
            undo = Action.read(step.compensation)
            yield undo.resource or OUTSIDE, f"step {step.number} {step.name}", undo.what, f"{transaction}:{step.number}"


def _journals(trace: Trace) -> Iterator[Entry]:
    settled = {(unit.resource, unit.number) for unit in trace.units if unit.decision is not None}
    for step in last_attempts(trace.steps):
        if step.statements and (step.resource, step.unit) not in settled:
            what = f"{step.statements} statement{'' if step.statements == 1 else 's'} of step {step.name}, not done yet"
            yield step.resource or HOME, what, "they are not done", f"step {step.number}, attempt {step.attempt}"


def _branches(trace: Trace, transaction: str) -> Iterator[Entry]:
    steps = {(step.branch, step.attempt): step for step in trace.steps}
    kept = {(unit.resource, unit.number): unit.decision for unit in trace.units}
    run = {(unit.branch, unit.attempt): unit.decision for unit in trace.units}
    for branch in trace.branches:
        step, place = steps.get((branch.number, branch.attempt)), (branch.number, branch.attempt)
        own = run.get(place) if step is None else kept.get((step.resource or "", step.unit))
        if branch.unfinished and own is not Decision.COMMIT:
            id = BranchId(transaction, branch.number, branch.attempt)
            what = f"the work of {'unit' if branch.aux else 'branch'} {branch.number}"
            what = f"the work of step {step.name}" if step else what
            yield branch.resource, what, "the resource rolls it back", id.gid


class Preview(NamedTuple):
    """One thing that would happen."""

    does: str
    where: str
    what: str
    number: int | None = None  # of messages, or of rows if known
    by: str | None = None


def preview_of(trace: Trace, *, undo: bool) -> list[Preview]:
    """Return what COMMIT (ROLLBACK if `undo`) would do; for a decided transaction, what is left to do."""
    wanted = Decision.ROLLBACK if undo else Decision.COMMIT
    if trace.decision not in (None, wanted):
        return []
    if trace.decision is None:
        settled = [
            *_settled_messages(trace, undo=undo),
            *_offsets(trace, undo=undo),
            *_settled_branches(trace, undo=undo),
        ]
    else:
        settled = []
    return [*settled, *(_undone(trace) if undo else _done(trace))]


def _settled_messages(trace: Trace, *, undo: bool) -> Iterator[Preview]:
    counted = Counter[str]()
    for sent in trace.sent:
        counted[sent.place.topic] += sent.messages
    for topic, count in sorted(counted.items()):
        yield Preview("drop" if undo else "publish", HOME, f"messages to {topic}", count)


def _offsets(trace: Trace, *, undo: bool) -> Iterator[Preview]:
    for group, _, place, first, last in trace.bound:
        what = f"messages of {place} for group {group}"
        yield Preview("give back" if undo else "take off", HOME, what, last - first + 1)


def _settled_branches(trace: Trace, *, undo: bool) -> Iterator[Preview]:
    for branch in trace.branches:
        if branch.unfinished and not branch.aux:
            yield Preview("roll back" if undo else "commit", branch.resource, f"the work of branch {branch.number}")


def _undone(trace: Trace) -> Iterator[Preview]:
    for step in sorted(trace.steps, key=lambda step: step.number, reverse=True):
        if step.forward or not step.waits:
            continue
        what = f"step {step.number} {step.name}"
        if step.state is StepState.COMPENSATION_FAILED:
            yield Preview("wait for you", _where(step), what, _rows(step), step.error)
        elif is_undone(step, trace.units):
            yield Preview("leave", _where(step), f"{what}, which is rolled back")
        elif step.left is Left.NOTHING:
            yield Preview("leave", _where(step), f"{what}, which left nothing")
        elif step.compensation is None:
            yield Preview("leave", _where(step), f"{what}, which has no compensation", _rows(step))
        else:
            undo = Action.read(step.compensation)
            does = "compensate" if _is_sure(trace, step) else "compensate, if it was done"
            yield Preview(does, undo.resource or OUTSIDE, what, _rows(step), undo.what)


def _is_sure(trace: Trace, step: Step) -> bool:
    """Return whether a step left work for sure: what a lane was about to commit may be there or not."""
    unit = lane_unit(step, trace.units) if step.kind is StepKind.HELD else None
    return step.left is Left.WORK and (unit is None or unit.decision is not None)


def _done(trace: Trace) -> Iterator[Preview]:
    for step in trace.steps:
        if step.action is not None and step.waits:
            yield Preview("do", _where(step), f"step {step.number} {step.name}", None, Action.read(step.action).what)
        elif step.kind is not None and not step.forward and trace.decision is None:
            yield Preview("keep", _where(step), f"step {step.number} {step.name}", _rows(step))


def _where(step: Step) -> str:
    return step.resource or OUTSIDE


def _rows(step: Step) -> int | None:
    """Return how many rows a statement changed, if that was recorded."""
    found = None if step.output is None else json.loads(step.output)
    return found if step.kind is StepKind.SQL and type(found) is int else None
