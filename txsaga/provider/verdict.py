"""
Judge how a flow ended from the states of its tasks. Pure: uses neither Airflow nor the store.

The states come from Airflow, which may report "skipped" for tasks that someone marked from outside. So a seal follows
all steps; it runs regardless of their outcome and is skipped only from outside. Without it there is no commit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

WELL = frozenset({"success", "removed"})
"""States of work that is done, or that turned out to be none."""
DROPPED = frozenset({"upstream_failed", "skipped"})
"""States of tasks after a failure that was handled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunShape:
    """How the flow's tasks relate to each other."""

    steps: Collection[str]
    seal: str | None = None  # without a seal, a skipped step counts as skipped from outside
    handlers: Mapping[str, str] | None = None  # by the task whose failure it handles
    behind: Mapping[str, Collection[str]] | None = None  # the tasks after each of these


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerdict:
    """Whether the flow commits, and if not, why."""

    commit: bool
    why: str = ""
    handled: tuple[str, ...] = ()  # failed tasks whose failure was handled
    left_out: frozenset[str] = frozenset()  # the steps of tasks that were skipped


def judge(states: Mapping[str, str | None], shape: RunShape) -> RunVerdict:
    """Judge a run by the states of its tasks; a mapped task has one state per instance."""
    if shape.seal is not None and states.get(shape.seal) != "success":
        return RunVerdict(commit=False, why="the run was ended from outside before all of its steps were over")
    parts = {step: _parts(states, step, shape.steps) for step in shape.steps}
    handled = _handled(parts, shape)
    excused = set(handled).union(*((shape.behind or {}).get(each, ()) for each in handled))
    wrong: dict[str, str] = {}
    for step, found in parts.items():
        for name, state in found.items():
            if state in WELL or (state == "skipped" and shape.seal is not None):
                continue
            if step in handled or (step in excused and state in DROPPED):
                continue
            wrong[name] = state or "not run"
    if wrong:
        first = [name for name, state in wrong.items() if state != "upstream_failed"] or list(wrong)
        return RunVerdict(commit=False, why=", ".join(f"task {name!r} is {wrong[name]}" for name in first))
    left_out = {_step_of(step, name) for step, found in parts.items() for name in found if found[name] == "skipped"}
    return RunVerdict(commit=True, handled=tuple(handled), left_out=frozenset(left_out))


def left_behind(states: Mapping[str, str | None], earlier: Collection[str], here: Collection[str]) -> list[str]:
    """Return successful tasks that have a step in an earlier epoch of the flow's key but none in this one."""
    names = (_task_of(step) for step in sorted(set(earlier) - set(here)))
    return [name for name in names if states.get(name) == "success"]


def _handled(parts: Mapping[str, Mapping[str, str | None]], shape: RunShape) -> list[str]:
    return [
        step
        for step, handler in (shape.handlers or {}).items()
        if "failed" in parts.get(step, {}).values()
        and all(state == "success" for state in parts.get(handler, {handler: None}).values())
    ]


def _parts(states: Mapping[str, str | None], step: str, steps: Collection[str]) -> dict[str, str | None]:
    found = {name: states[name] for name in states if name == step or (_is_part(name, step) and name not in steps)}
    return found or {step: None}


def _step_of(task: str, name: str) -> str:
    """Return the name of the step of a task, or of one instance of a mapped task."""
    return task if name == task else f"{task}[{name[len(task) + 1 :]}]"


def _task_of(step: str) -> str:
    """Return the name that a run's states use for the task of a step."""
    task, mapped, number = step.partition("[")
    return f"{task}_{number.removesuffix(']')}" if mapped else task


def _is_part(name: str, step: str) -> bool:
    return name.startswith(f"{step}_") and name[len(step) + 1 :].isdigit()
