"""
The TaskFlow decorator of steps: `@task.tx_step(on="current")`, or `step.python(on="current")`.

    @task.tx_step(on="current")
    def debit(connection, cents): …

    debit(2500)          debit.expand(cents=[1, 2])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow.sdk.bases.decorator import DecoratedOperator, TaskDecorator, task_decorator_factory

from txsaga.provider.operators.python import PythonStep, without_given


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
