"""
Steps that call something: a Python function, a function that commits by itself, an HTTP service.

The names of a function's parameters decide what the step passes: `connection` (work held prepared), `journal` (work
held in the journal), `flow` (to send in the step, or to vote), `errors` (what has failed so far), or anything from
Airflow's context. All others are passed by the caller.

    @task.tx_step(on="current")          or step.python(on="current")
    def debit(connection, cents): …

    debit(2500)          debit.expand(cents=[1, 2])
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from inspect import Parameter, signature
from itertools import pairwise
from typing import Any

from airflow.sdk import Context
from airflow.sdk.bases.decorator import DecoratedOperator, TaskDecorator, task_decorator_factory
from airflow.sdk.exceptions import AirflowSkipException

from txsaga.errors import ConfigError, StepLeftOut
from txsaga.flows.step import HOME, StepState, last_attempts
from txsaga.provider.operators.task import HOLD_IT, JoinedFlow, StepOperator, as_plain, skipped_as_left_out
from txsaga.provider.planning.modes import DeclaredStep, StepMode
from txsaga.provider.reference import step_name_of

GIVEN = ("connection", "journal", "flow", "errors")
"""The arguments that the step passes."""
IN_HELD = frozenset({"send", "table", "token", "check", "check_staged", "consume", "frames"})
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
            raise ConfigError(f"step {self.task_id!r} calls a {type(python_callable).__name__}; give a function")
        self.python_callable = python_callable
        self.op_args, self.op_kwargs = list(op_args), dict(op_kwargs or {})

    def declared(self) -> DeclaredStep | None:
        """Return this task as a declared step of the flow, with the function as its statement."""
        texts = (f"function {self.python_callable.__name__}",) if self.on is not None else ()
        return DeclaredStep(name=self.task_id, resource=self.on, statements=texts, hold=self.hold, mode=self.mode)

    @property
    def _function(self) -> Callable[..., object]:
        return getattr(self.python_callable, "__wrapped_step__", self.python_callable)

    def needs_held(self) -> str:
        """Return the reason if the function calls methods of the flow that only a held step can."""
        wanted = sorted(IN_HELD.intersection(used_of(self._function, "flow")))
        if not wanted:
            return ""
        told = ", ".join(f"flow.{name}" for name in wanted)
        return f"step {self.task_id!r} calls {told}, and {self.on!r} settles its own work when the step ends: {HOLD_IT}"

    def do(self, context: Context, flow: JoinedFlow, handle: Any) -> object:
        """Call the function with the arguments that it asks for."""
        function = self._function
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
    with flow.broker.kernel.store.ledgers.open() as ledger:
        last = last_attempts(ledger.flows.steps(flow.txid))
    return [{"step": each.name, "why": each.error} for each in last if each.state is StepState.FAILED]


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
            raise ConfigError(f"step {self.task_id!r} can't use {HOME!r}: its rows commit with the flow; use a SqlStep")
        self.python_callable = python_callable

    def work(self, context: Context, flow: JoinedFlow) -> object:
        """Call the function, unless an earlier attempt did."""
        on = None if self.on is None else flow.stored(self.on)
        try:
            return flow.flow.call(
                step_name_of(context["ti"]),
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

    def declared(self) -> DeclaredStep | None:
        """Return this task as a declared step of the flow."""
        name = getattr(self.python_callable, "__name__", "call")
        texts = (f"function {name}",) if self.on is not None else ()
        return DeclaredStep(
            name=self.task_id, resource=self.on, statements=texts, mode=StepMode.COMMIT if self.on else self.mode
        )


class TxStepOperator(DecoratedOperator, PythonStep):  # type: ignore[misc]  # both bases declare template_fields
    """A decorated function as a step."""

    custom_operator_name = "@task.tx_step"
    template_fields: Sequence[str] = ("flow", "op_args", "op_kwargs", "input")

    def __init__(
        self,
        *,
        python_callable: Callable[..., object],
        op_args: Sequence[object] | None = None,
        op_kwargs: Mapping[str, object] | None = None,
        **options: Any,
    ) -> None:
        handed: dict[str, Any] = {"python_callable": python_callable, "op_args": op_args or (), "op_kwargs": op_kwargs}
        super().__init__(kwargs_to_upstream=handed, **handed, **options)


def tx_step(
    python_callable: Callable[..., object] | None = None, multiple_outputs: bool | None = None, **options: Any
) -> TaskDecorator:
    """Make a function a step of a flow."""
    if python_callable is None:
        return lambda function: tx_step(function, multiple_outputs, **options)  # type: ignore[return-value]
    return task_decorator_factory(
        python_callable=without_given(python_callable),
        multiple_outputs=multiple_outputs,
        decorated_operator_class=TxStepOperator,
        **options,
    )


class HttpStep(StepOperator):
    """Call a service at least once, with the step's id as `Idempotency-Key`; its XCom is the answer.

    URL, headers and body are stored with the step so that an engine can continue: put no secrets in them. The call is
    undone by another call, `compensate=Http(…)`, with the same input. If the process dies, the retry calls again.
    """

    template_fields: Collection[str] = ("flow", "url", "input", "headers")

    def __init__(
        self,
        *,
        url: str,
        input: Mapping[str, object] | None = None,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(input=input, **options)
        if self.on is not None:
            raise ConfigError(f"step {self.task_id!r} calls a service and works in no resource; leave on= out")
        self.url, self.method, self.headers, self.timeout = url, method, headers, timeout

    def work(self, context: Context, flow: JoinedFlow) -> object:
        """Call the service, unless an earlier attempt got its answer."""
        from txsaga.flows.actions import Http

        answer: object = flow.flow.call(
            step_name_of(context["ti"]),
            Http(self.url, method=self.method, headers=dict(self.headers or {})),
            input=dict(self.input or {}),
            compensate=self.compensate,
            timeout=self.timeout,
        )
        if self.do_xcom_push:
            as_plain(answer, self.max_result)
        return answer
