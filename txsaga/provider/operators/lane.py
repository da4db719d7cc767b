"""
Settle a lane while its flow goes on: the work done in it so far is committed or rolled back by itself.

If the task runs twice, the second time finds nothing open and does nothing. If it never runs, the open unit follows the
flow's outcome.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Context

from txsaga.core.decision import Decision
from txsaga.flows.declaration import DeclaredStep, ResourceMode
from txsaga.provider.operators.flow_task import FlowOperator, JoinedFlow
from txsaga.provider.resources import DeclaredConnection


class LaneSettled(FlowOperator):
    """Settle the open unit of a lane."""

    decision: Decision

    def __init__(self, *, resource: str, **options: Any) -> None:
        super().__init__(**options)
        self.resource = resource

    def work(self, context: Context, flow: JoinedFlow) -> None:
        """Settle the open unit."""
        lane = flow.lane(self.resource)
        if self.decision is Decision.COMMIT:
            lane.commit()
        else:
            lane.roll_back()

    def declared(self) -> DeclaredStep | None:
        """Return this task as a step of the flow's plan."""
        return DeclaredStep(name=self.task_id, resource=self.resource, settle=self.decision)


class LaneCommit(LaneSettled):
    """Commit the work done in a lane so far, regardless of the flow's outcome."""

    decision = Decision.COMMIT


class LaneRollback(LaneSettled):
    """Roll back the work done in a lane so far; the flow goes on."""

    decision = Decision.ROLLBACK


class LaneMarker:
    """The type of `lane`."""

    def __call__(self, connection: str, *, kind: str | None = None) -> DeclaredConnection:
        """Declare a connection whose work is auxiliary: its lane commits or rolls back by itself."""
        return DeclaredConnection(connection=connection, mode=ResourceMode.LANE, kind=kind)

    def commit(self, resource: str, **options: Any) -> LaneCommit:
        """Make a task that commits the open unit of a lane while the flow goes on."""
        return LaneCommit(task_id=options.pop("task_id", f"commit_{resource}"), resource=resource, **options)

    def rollback(self, resource: str, **options: Any) -> LaneRollback:
        """Make a task that rolls back the open unit of a lane while the flow goes on."""
        return LaneRollback(task_id=options.pop("task_id", f"roll_back_{resource}"), resource=resource, **options)


lane = LaneMarker()
