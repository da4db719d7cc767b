"""
A DAG that is a message flow.

    @message_flow(coordinated=True, resources={"current": "pg_current", "audit": lane("pg_audit")}, schedule=None)
    def transfer():
        step.sql("debit", "UPDATE …", on="current") >> publish("transferred", …)

It is `@dag` plus a begin before every first task, a seal after every last one, and an end after the seal.

The seal runs regardless of how the steps ended and is skipped only if someone ends the run from outside; end commits no
run without it. End is a teardown, so it also runs after failures. It does not run if the run times out or is deleted;
check-back then rolls the flow back.

All problems of the flow are reported in one error when the file is parsed. It names the user's file and line, since
Airflow shows little of the stack. No connection is opened for that: a resource is taken to do what its kind can do at
best. Whether the actual server does is checked by begin, before any write.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, overload

from txsaga.errors import ConfigError, FlowRefused
from txsaga.flows.ballot import Ballot
from txsaga.flows.step import HOME, read_hold
from txsaga.provider.operators.flow import FlowBegin, FlowEnd, assets_of
from txsaga.provider.operators.messages import ConsumeStep, Publish
from txsaga.provider.operators.task import FlowOperator, StepOperator
from txsaga.provider.options import require_zones
from txsaga.provider.planning.modes import DeclaredResource, DeclaredStep, FlowDeclaration, Input, StepMode
from txsaga.provider.planning.refusals import problems
from txsaga.provider.reference import BEGIN
from txsaga.provider.resources import DeclaredConnection, Said, settles_alone
from txsaga.resources.capabilities import ResourceKind

if TYPE_CHECKING:
    from airflow.sdk import DAG
    from airflow.sdk.definitions._internal.abstractoperator import AbstractOperator


END = "end"
Body = Callable[..., object]
Made = Callable[..., "DAG"]


@overload
def message_flow(function: Body) -> Made: ...


@overload
def message_flow(
    *,
    resources: Said = ...,
    coordinated: bool = ...,
    ballots: Sequence[Ballot] = ...,
    outlets: Sequence[Any] = ...,
    store: str | None = ...,
    group: str | None = ...,
    lease: timedelta | None = ...,
    budget: timedelta | None = ...,
    allow_amend: bool = ...,
    **dag_options: Any,
) -> Callable[[Body], Made]: ...


def message_flow(
    function: Body | None = None,
    *,
    resources: Said = (),
    coordinated: bool = False,
    ballots: Sequence[Ballot] = (),
    outlets: Sequence[Any] = (),
    store: str | None = None,
    group: str | None = None,
    lease: timedelta | None = None,
    budget: timedelta | None = None,
    allow_amend: bool = False,
    **dag_options: Any,
) -> Made | Callable[[Body], Made]:
    """Make a function a DAG whose tasks form one flow; its `outlets` get an event exactly if the flow commits.

    With `allow_amend`, a run cleared after its commit begins a transaction that amends the committed one.
    """
    said: dict[str, Any] = {"resources": resources, "coordinated": coordinated, "ballots": ballots}
    said |= {"store": store, "group": group, "lease": lease, "budget": budget, "allow_amend": allow_amend}

    def decorate(body: Body) -> Made:
        from airflow.sdk import dag

        try:
            require_zones(dag_options, "start_date", "end_date")
        except ConfigError as wrong:
            raise FlowRefused(f"{_place(body)}: flow {body.__name__!r} can't be made: {wrong}") from wrong

        @functools.wraps(body)  # @dag reads name, signature and docstring from here
        def enclosed(*args: object, **kwargs: object) -> object:
            return _enclosed(body, said, outlets, args, kwargs)

        made: Made = dag(**dag_options)(enclosed)  # type: ignore[no-untyped-call]  # unwrapped: @dag reads caller file
        return made

    return decorate(function) if function else decorate


def _enclosed(body: Body, said: dict[str, Any], outlets: Sequence[Any], args: Any, kwargs: Any) -> object:
    place = _place(body)
    try:
        begin = FlowBegin(task_id=BEGIN, **said)
        result = _written(body, args, kwargs)
        require_free(begin.get_dag().task_ids, END)  # type: ignore[union-attr]
        enclose(begin, FlowEnd(task_id=END, outlets=list(outlets)), place=place)
    except FlowRefused:
        raise
    except ConfigError as wrong:
        raise FlowRefused(f"{place}: flow {body.__name__!r} can't be made: {wrong}") from wrong
    return result


def _place(body: Body) -> str:
    return f"{body.__code__.co_filename}, line {body.__code__.co_firstlineno}"


def _written(body: Body, args: Any, kwargs: Any) -> object:
    """Run the function that makes the steps; report a step that has the name of the flow's first task."""
    from airflow.sdk.exceptions import DuplicateTaskIdFound

    try:
        return body(*args, **kwargs)
    except DuplicateTaskIdFound as twice:
        if f"'{BEGIN}'" in str(twice):
            require_free([BEGIN], BEGIN)
        raise


SEAL = "seal"
SOON = frozenset({"one_failed", "one_success", "one_done"})
"""Trigger rules of tasks that may run while some of their upstream tasks still run."""


def enclose(begin: FlowBegin, end: FlowEnd, *, place: str | None = None) -> None:
    """Put all tasks of a DAG between the begin and the end of one flow; call it after all of them are created.

    All problems in their declarations are reported in one error that names `place`, where the flow is written.
    """
    from airflow.providers.standard.operators.empty import EmptyOperator

    dag = begin.get_dag()
    if dag is None:
        raise ConfigError("a flow is made of the tasks of a DAG; call enclose(…) inside of it")
    tasks = [each for each in dag.tasks if each is not begin and each is not end]
    if not tasks:
        raise ConfigError("a flow needs at least one step; make its tasks before enclose(…)")
    require_free(dag.task_ids, SEAL)
    handlers = _handlers(tasks)
    require_possible(begin, [each for each in tasks if _is_in(begin, each)], place or str(dag.fileloc))
    begin.as_setup()  # type: ignore[no-untyped-call]
    begin >> _first(tasks)
    closing = EmptyOperator(task_id=SEAL, trigger_rule="all_done")
    for last in list(dag.task_group.get_leaves()):
        if last in (begin, end, closing):
            continue
        if last.inherits_from_skipmixin:  # it skips its direct downstream tasks
            beside = EmptyOperator(task_id=f"{last.task_id.replace('.', '_')}_done", trigger_rule="all_done")
            last >> beside >> closing
        else:
            last >> closing
    for each in tasks:
        if _rule(each) in SOON:  # end waits for the upstream tasks that this task does not wait for
            [other for other in each.upstream_list if other in tasks and not other.inherits_from_skipmixin] >> closing
        if hasattr(each, "ignore_downstream_trigger_rules"):
            each.ignore_downstream_trigger_rules = False  # otherwise a short circuit would skip the seal
        if each.is_teardown and not each.downstream_task_ids:
            each >> end
    closing >> end
    end.seal, end.handlers = SEAL, handlers
    begin.is_followed = bool(assets_of(end.outlets))
    end.as_teardown(setups=begin, on_failure_fail_dagrun=True)


def require_free(taken: Iterable[str], name: str) -> None:
    """Refuse a user task that has the name of a task which every flow has."""
    if name in taken:
        raise ConfigError(f"task name {name!r} is reserved in a flow: give the task another name")


def _is_in(begin: FlowBegin, task: AbstractOperator) -> bool:
    """Return whether a task belongs to this flow, not to another flow of the same DAG."""
    of = getattr(task, "flow", None)
    return not isinstance(of, str) or of == begin.task_id


def _handlers(tasks: Iterable[AbstractOperator]) -> dict[str, str]:
    """Return, for each task whose failure is handled, the task that handles it."""
    found: dict[str, str] = {}
    for each in tasks:
        for caught in sorted(getattr(each, "txsaga_catches", ())):
            if caught in found:
                raise ConfigError(
                    f"the failure of task {caught!r} is handled by {found[caught]!r} and by {each.task_id!r}; "
                    "name one handler in catch(…), and let it start the others"
                )
            found[caught] = each.task_id
    return found


def _first(tasks: Sequence[AbstractOperator]) -> list[AbstractOperator]:
    ids = {each.task_id for each in tasks}
    first = [each for each in tasks if not each.upstream_task_ids & ids]
    ruled = {each.task_id: _rule(each) for each in first if _rule(each) != "all_success"}
    if ruled:
        told = ", ".join(f"{name} ({rule})" for name, rule in ruled.items())
        raise ConfigError(f"a first step runs when the flow is begun; remove the trigger rule of {told}")
    return first


def _rule(task: AbstractOperator) -> str:
    rule = getattr(task, "trigger_rule", "all_success")
    return str(getattr(rule, "value", rule))


def require_possible(begin: FlowBegin, tasks: Sequence[Any], place: str) -> None:
    """Raise one error that lists everything wrong with a DAG's flow."""
    if wrong := [*map(str, problems(declared_flow(begin, tasks))), *_impossible(begin, tasks)]:
        told = "".join(f"\n  - {each}" for each in wrong)
        raise FlowRefused(f"{place}: flow {begin.dag_id!r} can't run as it is declared:{told}")


def _impossible(begin: FlowBegin, tasks: Iterable[Any]) -> Iterator[str]:
    """Yield what single tasks can't do in this flow: work that must be held, amendments, mapping."""
    for task in tasks:
        if isinstance(task, StepOperator) and task.on is not None and task.on in begin.flow_resources:
            alone = settles_alone(begin.flow_resources[task.on].mode, begin.coordinated)
            if (alone or task.mode is StepMode.COMMIT) and (why := task.needs_held()):
                yield why
        if isinstance(task, ConsumeStep) and begin.allow_amend:
            yield task.not_amended()
        if _makes(task, ConsumeStep):
            yield f"task {task.task_id!r} {ConsumeStep.never_mapped}"


def _makes(task: Any, kind: type) -> bool:
    """Return whether a task is mapped and makes tasks of this kind."""
    return bool(task.is_mapped) and isinstance(task.operator_class, type) and issubclass(task.operator_class, kind)


def declared_flow(begin: FlowBegin, tasks: Sequence[Any]) -> FlowDeclaration:
    """Return the flow that a DAG's tasks declare, with its steps in a possible order of execution."""
    ordered = list(in_order(tasks))
    steps = tuple(step for task in ordered for step in _steps(task))
    return FlowDeclaration(
        name=begin.dag_id,
        input=Input(name="run"),
        resources=tuple(_resources(begin.flow_resources, steps)),
        steps=steps,
        outputs=tuple(task.sends() for task in ordered if isinstance(task, Publish)),
        ballots=begin.ballots,
        coordinated=begin.coordinated,
        coordinators=("txsaga",) if begin.coordinated else (),
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
    if isinstance(task, FlowOperator):
        if (found := task.declared()) is not None:
            yield found
    elif _makes(task, FlowOperator) and task.partial_kwargs.get("on") is not None:
        said = task.partial_kwargs  # the arguments known when the DAG is parsed
        sql = said.get("sql")
        texts = [sql] if isinstance(sql, str) else sql or ["by a function"]
        yield DeclaredStep(
            name=task.task_id, resource=said["on"], statements=tuple(texts), hold=read_hold(said.get("hold"))
        )


def _resources(said: Mapping[str, DeclaredConnection], steps: Iterable[DeclaredStep]) -> Iterator[DeclaredResource]:
    for name, each in said.items():
        yield DeclaredResource(
            name=name, kind=each.kind or ResourceKind.POSTGRESQL, mode=each.mode, instance=each.connection
        )
    if any(step.resource == HOME for step in steps):
        yield DeclaredResource(name=HOME, kind=ResourceKind.POSTGRESQL, home=True)
