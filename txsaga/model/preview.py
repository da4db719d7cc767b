"""
What COMMIT or ROLLBACK would do with a transaction, in the order in which it would happen.

It is told from what is durable, and it only tells; nothing decides by it. Rows that nobody counted have no number here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from txsaga.model.decision import Decision
from txsaga.model.flow_step import is_undone, lane_unit
from txsaga.model.saga import Action
from txsaga.model.step import Left, StepKind, StepRecord, StepState
from txsaga.model.trace import Trace
from txsaga.model.undo import HOME, OUTSIDE


class Preview(NamedTuple):
    """One thing that would happen."""

    does: str
    where: str
    what: str
    number: int | None = None  # messages, or rows as far as they are known
    by: str | None = None


def preview_of(trace: Trace, *, undo: bool) -> list[Preview]:
    """Return what COMMIT would do, or ROLLBACK; of one that is decided, what is left of that."""
    wanted = Decision.ROLLBACK if undo else Decision.COMMIT
    if trace.decision not in (None, wanted):
        return []
    if trace.decision is None:
        settled = [*_messages(trace, undo=undo), *_offsets(trace, undo=undo), *_branches(trace, undo=undo)]
    else:
        settled = []
    return [*settled, *(_undone(trace) if undo else _done(trace))]


def _messages(trace: Trace, *, undo: bool) -> Iterator[Preview]:
    counted = Counter[str]()
    for sent in trace.sent:
        counted[sent.place.topic] += sent.messages
    for topic, count in sorted(counted.items()):
        yield Preview("drop" if undo else "publish", HOME, f"messages to {topic}", count)


def _offsets(trace: Trace, *, undo: bool) -> Iterator[Preview]:
    for group, _, place, first, last in trace.bound:
        what = f"messages of {place} for group {group}"
        yield Preview("give back" if undo else "take off", HOME, what, last - first + 1)


def _branches(trace: Trace, *, undo: bool) -> Iterator[Preview]:
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
        elif step.kind is StepKind.HELD and is_undone(trace.flow_steps, trace.flow_units, step.number):
            yield Preview("leave", _where(step), f"{what}, which is rolled back")
        elif step.left is Left.NOTHING:
            yield Preview("leave", _where(step), f"{what}, which left nothing")
        elif step.compensation is None:
            yield Preview("leave", _where(step), f"{what}, which has no compensation", _rows(step))
        else:
            undo = Action.read(step.compensation)
            does = "compensate" if _is_sure(trace, step) else "compensate, if it was done"
            yield Preview(does, undo.resource or OUTSIDE, what, _rows(step), undo.what)


def _is_sure(trace: Trace, step: StepRecord) -> bool:
    """Tell whether a step has left something: what a lane was about to commit may be there or not."""
    unit = lane_unit(trace.flow_steps, trace.flow_units, step.number) if step.kind is StepKind.HELD else None
    return step.left is Left.WORK and (unit is None or unit.decision is not None)


def _done(trace: Trace) -> Iterator[Preview]:
    for step in trace.steps:
        if step.action is not None and step.waits:
            yield Preview("do", _where(step), f"step {step.number} {step.name}", None, Action.read(step.action).what)
        elif not step.forward and trace.decision is None:
            yield Preview("keep", _where(step), f"step {step.number} {step.name}", _rows(step))


def _where(step: StepRecord) -> str:
    return step.resource or OUTSIDE


def _rows(step: StepRecord) -> int | None:
    """Return how many rows a statement changed, where it was noted."""
    found = None if step.output is None else json.loads(step.output)
    return found if step.kind is StepKind.SQL and type(found) is int else None
