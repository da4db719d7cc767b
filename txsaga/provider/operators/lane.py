"""
Settling a lane while its flow goes on: what was done in it so far is committed, or rolled back, by itself.

Run twice, the second one finds nothing open and does nothing. If it never runs, the open unit follows the outcome.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Context

from txsaga.core.decision import Decision
from txsaga.flows.declaration import DeclaredStep, ResourceMode
from txsaga.provider.operators.flow_task import FlowOperator, JoinedFlow
from txsaga.provider.resources import DeclaredResources


class LaneSettled(FlowOperator):
    """Settle the open unit of a lane."""

    decision: Decision

    def __init__(self, *, resource: str, **options: Any) -> None:
        super().__init__(**options)
        self.resource = resource

    def work(self, context: Context, flow: JoinedFlow) -> None:
        """Settle it."""
        lane = flow.lane(self.resource)
        if self.decision is Decision.COMMIT:
            lane.commit()
        else:
            lane.roll_back()

    def declared(self) -> DeclaredStep | None:
        """Say what this task is in the flow's plan."""
        return DeclaredStep(name=self.task_id, resource=self.resource, settle=self.decision)


class LaneCommit(LaneSettled):
    """Commit what was done in a lane so far, whatever becomes of the flow."""

    decision = Decision.COMMIT


class LaneRollback(LaneSettled):
    """Roll back what was done in a lane so far; the flow goes on."""

    decision = Decision.ROLLBACK


class LaneMarker:
    """What `lane` is."""

    def __call__(self, connection: str, *, kind: str | None = None) -> DeclaredResources:
        """Name a connection whose work is auxiliary: its lane commits or rolls back by itself."""
        return DeclaredResources(connection=connection, mode=ResourceMode.LANE, kind=kind)

    def commit(self, resource: str, **options: Any) -> LaneCommit:
        """Make the task that commits the open unit of a lane while the flow goes on."""
        return LaneCommit(task_id=options.pop("task_id", f"commit_{resource}"), resource=resource, **options)

    def rollback(self, resource: str, **options: Any) -> LaneRollback:
        """Make the task that rolls the open unit of a lane back while the flow goes on."""
        return LaneRollback(task_id=options.pop("task_id", f"roll_back_{resource}"), resource=resource, **options)


lane = LaneMarker()
