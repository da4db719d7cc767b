"""
A step of a function that is no work in a database: done at least once, with what undoes it.

    @step.call(compensate=release_slot, input={"slot": 7})
    def reserve(slot): …

The function gets the input by names, as its compensation does; what it returns is kept in the store, and found again by
a retry. If the process dies in it, it is called again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from txsaga.errors import ConfigError
from txsaga.errors.saga import StepLeftOut
from txsaga.model.flow import Statement, Step, StepMode
from txsaga.model.flow_step import HOME
from txsaga.provider.operators.flow_task import JoinedFlow
from txsaga.provider.operators.step import StepOperator, skipped_as_left_out
from txsaga.provider.results import as_plain


class CallStep(StepOperator):
    """Call a function that commits by itself."""

    template_fields = ("flow", "input")

    def __init__(self, *, python_callable: Callable[..., object], **options: Any) -> None:
        super().__init__(**options)
        if self.on == HOME:
            raise ConfigError(f"step {self.task_id!r} commits by itself, rows of {HOME!r} with the flow; use a SqlStep")
        self.python_callable = python_callable

    def work(self, context: Context, flow: JoinedFlow) -> object:
        """Call it, unless an attempt before did."""
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
        """Never: a call is no held work."""
        raise NotImplementedError

    def declared(self) -> Step | None:
        """Say what this step is in the flow's plan."""
        name = getattr(self.python_callable, "__name__", "call")
        texts = (Statement(text=f"function {name}"),) if self.on is not None else ()
        return Step(
            name=self.task_id, resource=self.on, statements=texts, mode=StepMode.COMMIT if self.on else self.mode
        )
