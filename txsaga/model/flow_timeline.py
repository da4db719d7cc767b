"""The steps and the units of a flow, as its timeline tells them: one line for each attempt, in the lane of its work."""

from __future__ import annotations

from collections.abc import Iterator

from txsaga.model.application import read_application
from txsaga.model.decision import Decision
from txsaga.model.flow import Hold
from txsaga.model.flow_step import MAIN, FlowStep, StepState, last_attempts
from txsaga.model.timeline import MAIN as MAIN_LANE
from txsaga.model.timeline import Kind, Phase, Step
from txsaga.model.trace import Trace

UNITS = {Decision.COMMIT: ("committed", Kind.FINAL), Decision.ROLLBACK: ("rolled back", Kind.NONE)}


def flow_steps(trace: Trace) -> Iterator[Step]:
    """Tell each attempt of each step, and each unit that its lane settled."""
    last = {(step.number, step.attempt) for step in last_attempts(trace.flow_steps)}
    for step in trace.flow_steps:
        what, kind = _told(step, superseded=(step.number, step.attempt) not in last)
        at, lane = step.ended or step.started, _lane(step.resource, aux=step.lane)
        yield Step(what=what, kind=kind, phase=Phase.STORED, lane=lane, at=at, why=step.why)
    for unit in trace.flow_units:
        if unit.decision is not None and unit.number != MAIN:
            told, kind = UNITS[unit.decision]
            lane = _lane(unit.resource, aux=True)
            what = f"unit {unit.number} of the lane {told}"
            yield Step(what=what, kind=kind, phase=Phase.STORED, lane=lane, at=unit.at)


def _told(step: FlowStep, *, superseded: bool) -> tuple[str, Kind]:
    application = read_application(step.mark)
    tried = f", attempt {step.attempt}" if step.attempt > 1 else ""
    tried += "" if application is None else f", by {application.name}"
    match step.state:
        case StepState.FAILED:
            return f"step {step.name} failed{tried}", Kind.NONE
        case StepState.STARTED:
            what = "superseded" if superseded else "under way, or its process died"
            return f"step {step.name} {what}{tried}", Kind.NONE if superseded else Kind.CHANGE
    return f"step {step.name} done{_held(step)}{tried}", Kind.CHANGE


def _held(step: FlowStep) -> str:
    if step.hold is Hold.JOURNAL:
        return f": {step.statements} statement{'' if step.statements == 1 else 's'} in the journal"
    return ", held prepared" if step.branch is not None else ""


def _lane(resource: str | None, *, aux: bool) -> str:
    if resource is None:
        return MAIN_LANE
    return f"{resource} aux" if aux else resource
