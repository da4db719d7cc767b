"""
What can still be undone of a transaction: what ROLLBACK would take away, each thing by itself.

Nothing of it exists before the first step, each step adds some, and the decision ends it: what is committed can't be
undone here, and what is rolled back is undone once its resource was told. It only tells; nothing decides by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from txsaga.model.branch import BranchId
from txsaga.model.decision import Decision
from txsaga.model.flow_step import is_undone, last_attempts
from txsaga.model.saga import Action
from txsaga.model.step import Left, StepKind
from txsaga.model.trace import Trace

HOME = "home"
OUTSIDE = "outside"


class Undo(NamedTuple):
    """One thing that can still be undone: where it lies, what undoes it, and how it is called there."""

    number: int
    where: str
    what: str
    by: str
    reference: str


def undo_of(trace: Trace, transaction: str) -> list[Undo]:
    """Return what can be undone of a transaction, in the order in which it came."""
    if trace.decision is Decision.COMMIT:
        return []
    found = [*_branches(trace, transaction)]
    if trace.decision is None:
        found = [*_messages(trace), *_bound(trace), *_journals(trace), *found]
    found += _steps(trace, transaction)
    return [Undo(number, *each) for number, each in enumerate(found, 1)]


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
        held = step.kind is StepKind.HELD and is_undone(trace.flow_steps, trace.flow_units, step.number)
        waits = step.waits and not step.forward and step.left is not Left.NOTHING
        if waits and not held and step.compensation is not None:
            undo = Action.read(step.compensation)
            yield undo.resource or OUTSIDE, f"step {step.number} {step.name}", undo.what, f"{transaction}:{step.number}"


def _journals(trace: Trace) -> Iterator[Entry]:
    settled = {(unit.resource, unit.number) for unit in trace.flow_units if unit.decision is not None}
    for step in last_attempts(trace.flow_steps):
        if step.statements and (step.resource, step.unit) not in settled:
            what = f"{step.statements} statement{'' if step.statements == 1 else 's'} of step {step.name}, not done yet"
            yield step.resource or HOME, what, "they are not done", f"step {step.number}, attempt {step.attempt}"


def _branches(trace: Trace, transaction: str) -> Iterator[Entry]:
    steps = {(step.branch, step.attempt): step for step in trace.flow_steps}
    kept = {(unit.resource, unit.number): unit.decision for unit in trace.flow_units}
    run = {(unit.branch, unit.attempt): unit.decision for unit in trace.flow_units}
    for branch in trace.branches:
        step, place = steps.get((branch.number, branch.attempt)), (branch.number, branch.attempt)
        own = run.get(place) if step is None else kept.get((step.resource or "", step.unit))
        if branch.unfinished and own is not Decision.COMMIT:
            id = BranchId(transaction, branch.number, branch.attempt)
            what = f"the work of {'unit' if branch.aux else 'branch'} {branch.number}"
            what = f"the work of step {step.name}" if step else what
            yield branch.resource, what, "the resource rolls it back", id.gid
