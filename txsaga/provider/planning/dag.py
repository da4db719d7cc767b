"""
The plan of a DAG: its tasks' declarations become a flow; everything wrong with it is reported when the DAG is parsed.

No connection is opened: a resource is taken to do what its kind can do at best. Whether the actual server does is
checked by begin, before any write. The error names the user's file and line, since Airflow shows little of the stack.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from txsaga.errors import ConfigError, FlowRefused
from txsaga.flows.ballot import Ballot as Called
from txsaga.flows.declaration import (
    BallotRule,
    DeclaredBallot,
    DeclaredResource,
    DeclaredStep,
    FlowDeclaration,
    Hold,
    Input,
    InputKind,
    Output,
    ResourceMode,
    Statement,
    StepMode,
)
from txsaga.flows.step_records import HOME
from txsaga.provider.planning.plan import Plan, Problems, plan
from txsaga.provider.resources import DeclaredConnection
from txsaga.resources.capabilities import ResourceKind

if TYPE_CHECKING:
    from txsaga.provider.operators.begin import FlowBegin


COORDINATOR = "txsaga"


def planned(begin: FlowBegin, tasks: Sequence[Any], place: str) -> Plan:
    """Return the plan of a DAG's flow, or raise one error that lists everything wrong with it."""
    found = plan(declared_flow(begin, tasks))
    wrong = [
        *map(str, found.found if isinstance(found, Problems) else ()),
        *_never_held(begin, tasks),
        *_never_amended(begin, tasks),
        *_never_mapped(tasks),
    ]
    if wrong or isinstance(found, Problems):
        told = "".join(f"\n  - {each}" for each in wrong)
        raise FlowRefused(f"{place}: flow {begin.dag_id!r} can't run as it is declared:{told}")
    return found


def _never_held(begin: FlowBegin, tasks: Iterable[Any]) -> Iterator[str]:
    """Yield problems of steps that must be held but are on resources that commit each step by itself."""
    for task in tasks:
        ask = getattr(task, "needs_held", None)
        if callable(ask) and task.on is not None and task.on in begin.flow_resources:
            mode = begin.flow_resources[task.on].mode
            alone = mode is ResourceMode.LOCAL or (mode is ResourceMode.MAIN and not begin.coordinated)
            if (alone or task.mode is StepMode.COMMIT) and (why := ask()):
                yield why


def _never_amended(begin: FlowBegin, tasks: Iterable[Any]) -> Iterator[str]:
    """Yield problems of steps that can't be repeated after a commit."""
    for task in tasks if begin.allow_amend else ():
        ask = getattr(task, "not_amended", None)
        if callable(ask):
            yield ask()


def _never_mapped(tasks: Iterable[Any]) -> Iterator[str]:
    """Yield problems of mapped tasks that must not be mapped."""
    for task in tasks:
        if getattr(task, "is_mapped", False) and (why := getattr(task.operator_class, "never_mapped", "")):
            yield f"task {task.task_id!r} {why}"


def declared_flow(begin: FlowBegin, tasks: Sequence[Any]) -> FlowDeclaration:
    """Return the flow that a DAG's tasks declare, with its steps in a possible order of execution."""
    ordered = list(in_order(tasks))
    steps = tuple(step for task in ordered for step in _steps(task))
    return FlowDeclaration(
        name=begin.dag_id,
        inputs=(Input(name="run", kind=InputKind.TRIGGER),),
        resources=tuple(_resources(begin.flow_resources, steps)),
        steps=steps,
        outputs=tuple(each for task in ordered for each in _outputs(task)),
        ballots=tuple(map(_ballot, begin.ballots)),
        coordinated=begin.coordinated,
        coordinators=(COORDINATOR,) if begin.coordinated else (),
    )


def in_order(tasks: Iterable[Any]) -> Iterator[Any]:
    """Yield tasks so that each comes after those it waits for."""
    left = {task.task_id: task for task in tasks}
    while left:
        ready = [task for task in left.values() if not task.upstream_task_ids & left.keys()]
        if not ready:
            raise ConfigError(f"tasks {', '.join(sorted(left))} wait for each other in a circle")
        for task in ready:
            yield left.pop(task.task_id)


def _steps(task: Any) -> Iterator[DeclaredStep]:
    declare = getattr(task, "declared", None)
    if callable(declare):
        found = declare()
        if isinstance(found, DeclaredStep):
            yield found
        return
    if (said := _mapped(task)) is not None and said.get("on") is not None:
        hold, sql = said.get("hold"), said.get("sql")
        texts = [sql] if isinstance(sql, str) else sql or ["by a function"]
        yield DeclaredStep(
            name=task.task_id,
            resource=said["on"],
            statements=tuple(Statement(text=each) for each in texts),
            hold=None if hold is None else Hold(hold),
        )


def _outputs(task: Any) -> Iterator[Output]:
    sends = getattr(task, "sends", None)
    if callable(sends):
        yield sends()


def _mapped(task: Any) -> Mapping[str, Any] | None:
    """Return the arguments known at parse time of a mapped task of ours, or None."""
    from txsaga.provider.operators.flow_task import FlowOperator

    kind = getattr(task, "operator_class", None)
    return task.partial_kwargs if isinstance(kind, type) and issubclass(kind, FlowOperator) else None


def _resources(said: Mapping[str, DeclaredConnection], steps: Iterable[DeclaredStep]) -> Iterator[DeclaredResource]:
    for name, each in said.items():
        yield DeclaredResource(
            name=name, kind=each.kind or ResourceKind.POSTGRESQL, mode=each.mode, instance=each.connection
        )
    if any(step.resource == HOME for step in steps):
        yield DeclaredResource(name=HOME, kind=ResourceKind.POSTGRESQL, home=True)


def _ballot(called: Called) -> DeclaredBallot:
    return DeclaredBallot(
        name=called.name, voters=called.voters, rule=BallotRule(called.rule.value), quorum=called.needed
    )
