"""
Settling a lane while its flow goes on: what was done in it so far is committed, or rolled back, by itself.

Run twice, the second one finds nothing open and does nothing. If it never runs, the open unit follows the outcome.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Context

from txsaga.model.decision import Decision
from txsaga.model.flow import Step
from txsaga.provider.operators.flow_task import FlowOperator, JoinedFlow


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

    def declared(self) -> Step | None:
        """Say what this task is in the flow's plan."""
        return Step(name=self.task_id, resource=self.resource, settle=self.decision)


class LaneCommit(LaneSettled):
    """Commit what was done in a lane so far, whatever becomes of the flow."""

    decision = Decision.COMMIT


class LaneRollback(LaneSettled):
    """Roll back what was done in a lane so far; the flow goes on."""

    decision = Decision.ROLLBACK
