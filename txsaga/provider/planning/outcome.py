"""
What became of a flow, judged by the recorded outcomes of its steps; and where an error of one step goes.

Failure is one thing only: an error that travelled back to the input. An error that a failure path or a catch took in
is success. An error goes the way back that its message came: first its own step's failure path, then the nearest catch
around it, then out. Whatever can't be known counts as failure: a step that was started and has told nothing, a step
that had to run and has no record. If this were not asked, a flow would commit because nobody objected.

The flow is one that has a plan: its names are known and its paths end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import NamedTuple

from txsaga.flows.declaration import DeclaredStep, FlowDeclaration, StepMode


class StepOutcome(StrEnum):
    """What is recorded of a step."""

    STARTED = "started"  # nobody knows more
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"  # by whoever runs the flow, knowingly


class StepError(NamedTuple):
    """An error of a step."""

    step: str
    what: str


class Goes(Enum):
    """Where an error goes."""

    FAILURE_PATH = "to the failure path"
    CATCH = "to the catch handler"
    DROPPED = "nowhere: the message is dropped by a catch without a handler"
    THROWN = "back to the input: the flow fails"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """What happens to an error."""

    goes: Goes
    to: str | None  # the step that goes on with the message
    message_before: str | None  # the message is as it was before this step; None: as it was received
    errors: tuple[StepError, ...]


class _Way(NamedTuple):
    """One way back: the steps that the error left behind, and the step that caught it."""

    left: tuple[str, ...]
    caught_by: DeclaredStep | None


def handling(flow: FlowDeclaration, error: StepError, *, earlier: Sequence[StepError] = ()) -> Handling:
    """Say where an error of a step goes; `earlier` are the errors that the step was called to handle."""
    return _handling(flow, error, earlier, {step.name for step in flow.steps})


def failed(flow: FlowDeclaration, outcomes: Mapping[str, StepOutcome]) -> bool:
    """Tell whether the flow failed."""
    return next(failures(flow, outcomes), None) is not None


def failures(flow: FlowDeclaration, outcomes: Mapping[str, StepOutcome]) -> Iterator[str]:
    """Yield why the flow failed, a line each."""
    failing = _failing(outcomes)
    for step in flow.steps:
        match outcomes.get(step.name):
            case StepOutcome.STARTED:
                yield f"step {step.name!r} was started and has told nothing since"
            case StepOutcome.FAILED:
                found = _handling(flow, StepError(step.name, ""), (), failing)
                if found.goes is Goes.THROWN:
                    yield f"the error of step {step.name!r} reached the input"
                elif found.to and outcomes.get(found.to) in (None, StepOutcome.SKIPPED):
                    yield f"the error of step {step.name!r} goes to step {found.to!r}, which did not run"
    for name in _due(flow, outcomes, failing):
        if name not in outcomes:
            yield f"step {name!r} has no record"


def undone(flow: FlowDeclaration, outcomes: Mapping[str, StepOutcome]) -> tuple[str, ...]:
    """Return the steps in commit mode whose own work is rolled back: an error passed through them."""
    failing = _failing(outcomes)
    passed = {name for each in failing for name in _left(flow, flow.step(each), failing)}
    return tuple(step.name for step in flow.steps if step.mode is StepMode.COMMIT and step.name in passed)


def _failing(outcomes: Mapping[str, StepOutcome]) -> set[str]:
    return {name for name, outcome in outcomes.items() if outcome is StepOutcome.FAILED}


def _handling(
    flow: FlowDeclaration, error: StepError, earlier: Sequence[StepError], failing: Collection[str]
) -> Handling:
    step, errors = flow.step(error.step), (*earlier, error)
    if step.failure:
        return Handling(goes=Goes.FAILURE_PATH, to=step.failure, message_before=step.name, errors=errors)
    ways = list(_back(flow, step, failing))
    # A shared handler that fails may have been called from several places: one way out is enough to fail.
    if any(way.caught_by is None for way in ways):
        return Handling(goes=Goes.THROWN, to=None, message_before=None, errors=errors)
    catcher = ways[0].caught_by
    assert catcher is not None and catcher.catch is not None
    goes = Goes.CATCH if catcher.catch.to else Goes.DROPPED
    return Handling(goes=goes, to=catcher.catch.to, message_before=catcher.name, errors=errors)


def _left(flow: FlowDeclaration, step: DeclaredStep, failing: Collection[str]) -> Iterator[str]:
    yield step.name
    if not step.failure:
        for way in _back(flow, step, failing):
            yield from way.left


def _back(flow: FlowDeclaration, step: DeclaredStep, failing: Collection[str]) -> Iterator[_Way]:
    """Yield the ways back from a step, itself included."""
    if step.catch:
        yield _Way((), step)
        return
    yield from (_Way((step.name, *way.left), way.caught_by) for way in _out_of(flow, step, failing))


def _out_of(flow: FlowDeclaration, step: DeclaredStep, failing: Collection[str]) -> Iterator[_Way]:
    """Yield the ways back from behind a step: through those that called it."""
    called = False
    for caller in flow.steps:
        if step.name in caller.propagates or (step.name == caller.failure and caller.name in failing):
            called = True
            yield from _back(flow, caller, failing)
        elif caller.catch and caller.catch.to == step.name and _tried(flow, caller, failing):
            called = True
            yield from _out_of(flow, caller, failing)  # its own catch is used up
    if not called:
        yield _Way((), None)


def _tried(flow: FlowDeclaration, step: DeclaredStep, failing: Collection[str]) -> bool:
    """Tell whether something failed in what a step tries."""
    return any(name in failing for name in (step.name, *below(flow, step)))


def below(flow: FlowDeclaration, step: DeclaredStep) -> Iterator[str]:
    """Yield what a step calls, and what that calls, failure paths included."""
    for name in (*step.propagates, *filter(None, [step.failure])):
        yield name
        yield from below(flow, flow.step(name))


def _due(flow: FlowDeclaration, outcomes: Mapping[str, StepOutcome], failing: Collection[str]) -> Iterator[str]:
    """Yield the steps that had to run: called by nobody, or by a step that is done and whose path was not cut off."""
    handlers = {name for step in flow.steps for name in (step.failure, step.catch.to if step.catch else None) if name}
    cut = {
        name
        for step in flow.steps
        if step.catch and _tried(flow, step, failing)
        for name in (step.name, *below(flow, step))
    }
    for step in flow.steps:
        callers = [each for each in flow.steps if step.name in each.propagates]
        done = any(outcomes.get(each.name) is StepOutcome.DONE and each.name not in cut for each in callers)
        if done or (not callers and step.name not in handlers):
            yield step.name
