"""
A DAG that is a message flow.

    @message_flow(coordinated=True, resources={"current": "pg_current", "audit": lane("pg_audit")}, schedule=None)
    def transfer():
        step.sql("debit", "UPDATE …", on="current") >> publish("transferred", …)

It is `@dag` plus a begin before the first tasks and a seal and an end after the last ones. All problems of the flow are
reported in one error when the file is parsed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, overload

from txsaga.errors import ConfigError, FlowRefused
from txsaga.flows.ballot import Ballot
from txsaga.provider.options import require_zones
from txsaga.provider.reference import BEGIN
from txsaga.provider.resources import Said

if TYPE_CHECKING:
    from airflow.sdk import DAG

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
    from txsaga.provider.enclosing import enclose, require_free
    from txsaga.provider.operators.begin import FlowBegin
    from txsaga.provider.operators.end import FlowEnd

    place = _place(body)
    try:
        begin = FlowBegin(task_id=BEGIN, **said)
        result = _written(body, args, kwargs)
        dag = begin.get_dag()
        assert dag is not None
        require_free(dag.task_ids, [END])
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

    from txsaga.provider.enclosing import require_free

    try:
        return body(*args, **kwargs)
    except DuplicateTaskIdFound as twice:
        if f"'{BEGIN}'" in str(twice):
            require_free([BEGIN], [BEGIN])
        raise
