"""
A step that calls a Python function.

The names of the function's parameters decide what the step passes: `connection` (work held prepared), `journal` (work
held in the journal), `flow` (to send in the step, or to vote), `errors` (what has failed so far), or anything from
Airflow's context. All others are passed by the caller.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from inspect import Parameter, signature
from itertools import pairwise
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from txsaga.errors import ConfigError, StepLeftOut
from txsaga.flows.declaration import DeclaredStep, Statement, StepMode
from txsaga.flows.step_records import HOME
from txsaga.provider.operators.flow_task import JoinedFlow
from txsaga.provider.operators.step import HOLD_IT, StepOperator, skipped_as_left_out
from txsaga.provider.results import as_plain

GIVEN = ("connection", "journal", "flow", "errors")
"""The arguments that the step passes."""
IN_HELD = frozenset({"send", "table", "check", "check_staged", "consume", "frames"})
"""Methods of a flow that only work in a held step."""
ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")


class PythonStep(StepOperator):
    """Call a function in a step; its XCom is what the function returns."""

    template_fields: Collection[str] = ("flow", "op_args", "op_kwargs", "input")

    def __init__(
        self,
        *,
        python_callable: Callable[..., object],
        op_args: Sequence[object] = (),
        op_kwargs: Mapping[str, object] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if not callable(python_callable):
            raise ConfigError(f"step {self.task_id!r} calls {python_callable!r}; give a function")
        self.python_callable = python_callable
        self.op_args, self.op_kwargs = list(op_args), dict(op_kwargs or {})

    def declared(self) -> DeclaredStep | None:
        """Return this task as a step of the flow's plan, with the function as its statement."""
        texts = (Statement(text=f"function {self.python_callable.__name__}"),) if self.on is not None else ()
        return DeclaredStep(name=self.task_id, resource=self.on, statements=texts, hold=self.hold, mode=self.mode)

    def needs_held(self) -> str:
        """Return the reason if the function calls methods of the flow that only a held step can."""
        asked = sorted(set(used_of(getattr(self.python_callable, "__wrapped_step__", self.python_callable), "flow")))
        wanted = [name for name in asked if name in IN_HELD]
        if not wanted:
            return ""
        told = ", ".join(f"flow.{name}" for name in wanted)
        return f"step {self.task_id!r} calls {told}, and {self.on!r} settles its own work when the step ends: {HOLD_IT}"

    def do(self, context: Context, flow: JoinedFlow, handle: Any) -> object:
        """Call the function with the arguments that it asks for."""
        function = getattr(self.python_callable, "__wrapped_step__", self.python_callable)
        given: dict[str, object] = {**context, "connection": handle, "journal": handle, "flow": flow.flow}
        if "errors" in signature(function).parameters:
            given["errors"] = failures(flow)
        return function(**_asked(function, given, self.op_args, self.op_kwargs))


def without_given(function: Callable[..., object]) -> Callable[..., object]:
    """Return a wrapper whose signature has only the caller's arguments, since TaskFlow checks them at parse time."""

    @functools.wraps(function)
    def shown(*args: object, **kwargs: object) -> object:
        return function(*args, **kwargs)

    whole = signature(function)
    callers = [each for name, each in whole.parameters.items() if name not in GIVEN]
    shown.__signature__ = whole.replace(parameters=callers)  # type: ignore[attr-defined]
    shown.__wrapped_step__ = function  # type: ignore[attr-defined]
    return shown


def used_of(function: Callable[..., object], argument: str) -> Iterator[str]:
    """Yield the attributes that a function reads from one of its arguments, as far as its bytecode shows."""
    code = getattr(function, "__code__", None)
    for found, next_one in pairwise(dis.get_instructions(code)) if code is not None else ():
        if found.opname.startswith("LOAD_") and found.argval == argument and next_one.opname in ATTRIBUTES:
            yield str(next_one.argval)


def failures(flow: JoinedFlow) -> list[dict[str, str]]:
    """Return the steps of this flow that have failed so far, and why."""
    from txsaga.flows.step_records import FlowStepState, last_attempts

    with flow.broker.kernel.store.ledgers.open() as ledger:
        last = last_attempts(ledger.flows.steps(flow.txid))
    return [{"step": each.name, "why": each.why} for each in last if each.state is FlowStepState.FAILED]


def _asked(
    function: Callable[..., object], given: Mapping[str, object], args: Sequence[object], kwargs: Mapping[str, object]
) -> dict[str, object]:
    """Return the arguments by name: the caller's, then those of the step for the remaining parameters."""
    whole = signature(function)
    callers = whole.replace(parameters=[each for name, each in whole.parameters.items() if name not in GIVEN])
    asked: dict[str, object] = {}
    for name, value in callers.bind_partial(*args, **kwargs).arguments.items():
        match whole.parameters[name].kind:
            case Parameter.VAR_POSITIONAL | Parameter.POSITIONAL_ONLY:
                raise ConfigError(f"{function.__name__} takes arguments without names; name them")
            case Parameter.VAR_KEYWORD:
                asked |= value
            case _:
                asked[name] = value
    return {name: given[name] for name in whole.parameters if name in given and name not in asked} | asked


class CallStep(StepOperator):
    """Call a function that commits by itself."""

    template_fields = ("flow", "input")

    def __init__(self, *, python_callable: Callable[..., object], **options: Any) -> None:
        super().__init__(**options)
        if self.on == HOME:
            raise ConfigError(f"step {self.task_id!r} commits by itself, rows of {HOME!r} with the flow; use a SqlStep")
        self.python_callable = python_callable

    def work(self, context: Context, flow: JoinedFlow) -> object:
        """Call the function, unless an earlier attempt did."""
        on = None if self.on is None else flow.stored(self.on)
        try:
            return flow.flow.call(
                self.step_name(context),
                self._called(),
                input=dict(self.input or {}),
                compensate=self.compensate,
                on=on,
            )
        except StepLeftOut as left_out:
            raise AirflowSkipException(str(left_out)) from left_out

    def _called(self) -> Callable[..., object]:
        @functools.wraps(self.python_callable)
        def called(*args: object, **kwargs: object) -> object:
            with skipped_as_left_out():
                result = self.python_callable(*args, **kwargs)
            if self.do_xcom_push:
                as_plain(result, self.max_result)
            return result

        return called

    def do(self, context: Context, flow: JoinedFlow, handle: Any) -> object:
        """Raise: a call is not held work."""
        raise NotImplementedError

    def declared(self) -> DeclaredStep | None:
        """Return this task as a step of the flow's plan."""
        name = getattr(self.python_callable, "__name__", "call")
        texts = (Statement(text=f"function {name}"),) if self.on is not None else ()
        return DeclaredStep(
            name=self.task_id, resource=self.on, statements=texts, mode=StepMode.COMMIT if self.on else self.mode
        )
