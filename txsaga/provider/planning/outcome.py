"""
Judge the outcome of a flow by the recorded outcomes of its steps, and route the error of a step.

A flow fails only if an error travels back to the input; an error handled by a failure path or a catch counts as
success. An error travels back along the path of its message: first to the failure path of its own step, then to the
nearest enclosing catch, then out. Anything unknown counts as failure: a step that started and has recorded nothing
since, a step that had to run and has no record. Otherwise a flow would commit merely because nothing objected.

The flow must have a plan: its names are known and its paths end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import NamedTuple

from txsaga.flows.declaration import DeclaredStep, FlowDeclaration, StepMode


class StepOutcome(StrEnum):
    """The recorded state of a step."""

    STARTED = "started"  # nothing more is known
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"  # deliberately, by the runner of the flow


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
    """How an error is handled."""

    goes: Goes
    to: str | None  # the step that continues with the message
    message_before: str | None  # the message as it was before this step; None: as it was received
    errors: tuple[StepError, ...]


class _Way(NamedTuple):
    """One path back: the steps that the error left, and the step that caught it."""

    left: tuple[str, ...]
    caught_by: DeclaredStep | None


def handling(flow: FlowDeclaration, error: StepError, *, earlier: Sequence[StepError] = ()) -> Handling:
    """Return where the error of a step goes; `earlier` are the errors that the step was called to handle."""
    return _handling(flow, error, earlier, {step.name for step in flow.steps})


def failed(flow: FlowDeclaration, outcomes: Mapping[str, StepOutcome]) -> bool:
    """Return whether the flow failed."""
    return next(failures(flow, outcomes), None) is not None


def failures(flow: FlowDeclaration, outcomes: Mapping[str, StepOutcome]) -> Iterator[str]:
    """Yield the reasons why the flow failed, one line each."""
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
    """Return the steps in commit mode whose own work is rolled back because an error passed through them."""
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
    # A shared handler that fails may have several callers: one path out is enough to fail the flow.
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
    """Yield the paths back from a step, starting with the step itself."""
    if step.catch:
        yield _Way((), step)
        return
    yield from (_Way((step.name, *way.left), way.caught_by) for way in _out_of(flow, step, failing))


def _out_of(flow: FlowDeclaration, step: DeclaredStep, failing: Collection[str]) -> Iterator[_Way]:
    """Yield the paths back out of a step, through its callers."""
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
    """Return whether a step, or anything below it, failed."""
    return any(name in failing for name in (step.name, *below(flow, step)))


def below(flow: FlowDeclaration, step: DeclaredStep) -> Iterator[str]:
    """Yield the steps that a step calls, directly or indirectly, including failure paths."""
    for name in (*step.propagates, *filter(None, [step.failure])):
        yield name
        yield from below(flow, flow.step(name))


def _due(flow: FlowDeclaration, outcomes: Mapping[str, StepOutcome], failing: Collection[str]) -> Iterator[str]:
    """Yield the steps that had to run: no step calls them, or a caller is done and its path was not cut off."""
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
