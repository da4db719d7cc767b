"""
The functions for writing a flow's body; each makes one task.

    debit = step.sql("debit", "UPDATE …", on="current", rows=1)
    publish("transferred", {"cents": 2500})

    @step.python(on="mortgage")
    def credit(connection, cents): …
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import TriggerRule
from airflow.sdk.bases.operator import BaseOperator

from txsaga.provider.operators.call import CallStep, HttpStep, tx_step
from txsaga.provider.operators.messages import Publish
from txsaga.provider.operators.sql import SqlStep

if TYPE_CHECKING:
    from txsaga.lake.gates import Gate
    from txsaga.provider.operators.spark import SparkStep
    from txsaga.provider.operators.votes import Approval, BallotVote, GateStep


class FlowSteps:
    """The type of `step`."""

    def sql(self, name: str, sql: str | Sequence[str], *, on: str, **options: Any) -> SqlStep:
        """Make a step of SQL statements."""
        return SqlStep(task_id=name, sql=sql, on=on, **options)

    def python(self, function: Callable[..., Any] | None = None, **options: Any) -> Callable[..., Any]:
        """Make a function a step, as `@task` makes it a task: it can be mapped and takes results of other tasks."""
        return tx_step(function, **options)

    def http(self, name: str, url: str, input: Mapping[str, object] | None = None, **options: Any) -> HttpStep:
        """Make a step that calls a service."""
        return HttpStep(task_id=name, url=url, input=input, **options)

    def call(
        self, name: str, function: Callable[..., Any], input: Mapping[str, object] | None = None, **options: Any
    ) -> CallStep:
        """Make a step from a function that commits by itself; `compensate=` undoes it."""
        return CallStep(task_id=name, python_callable=function, input=input, **options)

    def spark(self, name: str, program: str, **options: Any) -> SparkStep:
        """Make a step that runs a Spark program."""
        from txsaga.provider.operators.spark import SparkStep

        return SparkStep(task_id=name, program=program, **options)

    def gate(self, name: str, gate: Gate, **options: Any) -> GateStep:
        """Make a gate on the staged rows of a `table`, or on the rows that `sql` returns `on` a resource."""
        from txsaga.provider.operators.votes import GateStep

        return GateStep(task_id=name, gate=gate, **options)

    def __call__(self, operator: type[BaseOperator], name: str, **options: Any) -> BaseOperator:
        """Make a step from a custom operator."""
        return operator(task_id=name, **options)


step = FlowSteps()


def publish(topic: str, body: object = "", *, name: str | None = None, **options: Any) -> Publish:
    """Make a task that publishes a message, with the flow unless `mode` is set otherwise."""
    return Publish(task_id=name or f"publish_{topic}", topic=topic, body=body, **options)


def approve(subject: str, *, ballot: str, name: str = "approve", **options: Any) -> Approval:
    """Make a task that asks a person, whose answer is a vote."""
    from txsaga.provider.operators.votes import Approval

    return Approval(task_id=name, subject=subject, ballot=ballot, **options)


def vote(name: str, *, ballot: str, **options: Any) -> BallotVote:
    """Make a task that checks something and votes."""
    from txsaga.provider.operators.votes import BallotVote

    return BallotVote(task_id=name, ballot=ballot, **options)


def catch(failing: Any, handler: Any) -> BaseOperator:
    """Let a task handle the failure of others: once it succeeds, they count as handled and the flow may commit.

    Tasks after a failed one are skipped; the work it held is rolled back.
    """
    said = list(failing) if isinstance(failing, Sequence) else [failing]
    tasks = [getattr(each, "operator", each) for each in said]  # calling a decorated function returns an XComArg
    dealing: BaseOperator = getattr(handler, "operator", handler)
    for each in tasks:
        each >> dealing
    dealing.trigger_rule = TriggerRule.ONE_FAILED
    known: set[str] = getattr(dealing, "txsaga_catches", set())
    dealing.txsaga_catches = known | {each.task_id for each in tasks}
    return dealing
