"""
Turn a DAG's tasks into a flow: begin before every first task, a seal after every last one, end after the seal.

The seal runs regardless of how the steps ended and is skipped only if someone ends the run from outside; end commits no
run without it. End is a teardown, so it also runs after failures. It does not run if the run times out or is deleted;
check-back then rolls the flow back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from txsaga.errors import ConfigError

if TYPE_CHECKING:
    from airflow.sdk.definitions._internal.abstractoperator import AbstractOperator

    from txsaga.provider.operators.begin import FlowBegin
    from txsaga.provider.operators.end import FlowEnd

SEAL = "seal"
SOON = frozenset({"one_failed", "one_success", "one_done"})
"""Trigger rules of tasks that may run while some of their upstream tasks still run."""


def enclose(begin: FlowBegin, end: FlowEnd, *, seal: str = SEAL, place: str | None = None) -> None:
    """Put all tasks of a DAG between the begin and the end of one flow; call it after all of them are created.

    All problems in their declarations are reported in one error that names `place`, where the flow is written.
    """
    from airflow.providers.standard.operators.empty import EmptyOperator

    from txsaga.provider.outlets import assets_of
    from txsaga.provider.planning.dag import planned

    dag = begin.get_dag()
    if dag is None:
        raise ConfigError("a flow is made of the tasks of a DAG; call enclose(…) inside of it")
    tasks = [each for each in dag.tasks if each is not begin and each is not end]
    if not tasks:
        raise ConfigError("a flow needs at least one step; make its tasks before enclose(…)")
    require_free(dag.task_ids, [seal])
    handlers = _handlers(tasks)
    planned(begin, [each for each in tasks if _is_in(begin, each)], place or str(dag.fileloc))
    begin.as_setup()  # type: ignore[no-untyped-call]
    begin >> _first(tasks)
    closing = EmptyOperator(task_id=seal, trigger_rule="all_done")
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
    end.seal = seal
    end.handlers.update(handlers)
    begin.is_followed = bool(assets_of(end.outlets))
    end.as_teardown(setups=begin, on_failure_fail_dagrun=True)


def require_free(taken: Iterable[str], names: Iterable[str]) -> None:
    """Refuse user tasks that have the name of a task which every flow has."""
    for name in names:
        if name in taken:
            raise ConfigError(f"a task is named {name!r}, as one that every flow has: give it another name")


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
                    f"the failure of task {caught!r} is dealt with by {found[caught]!r} and by {each.task_id!r}; "
                    "name one handler in catch(…), and let it start the others"
                )
            found[caught] = each.task_id
    return found


def _first(tasks: Sequence[AbstractOperator]) -> list[AbstractOperator]:
    ids = {each.task_id for each in tasks}
    first = [each for each in tasks if not each.upstream_task_ids & ids]
    ruled = {each.task_id: _rule(each) for each in first if _rule(each) != "all_success"}
    if ruled:
        told = _listed(f"{name} ({rule})" for name, rule in ruled.items())
        raise ConfigError(f"a first step runs when the flow is begun; remove the trigger rule of {told}")
    return first


def _rule(task: AbstractOperator) -> str:
    rule = getattr(task, "trigger_rule", "all_success")
    return str(getattr(rule, "value", rule))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
