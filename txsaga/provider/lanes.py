"""
The word `lane`: it marks a resource as a lane's, and makes the tasks that settle one.

    resources={"audit": lane("pg_audit")}        lane.commit("audit")        lane.rollback("audit")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from txsaga.model.flow import ResourceMode
from txsaga.provider.resources import Declared

if TYPE_CHECKING:
    from txsaga.provider.operators.lane import LaneCommit, LaneRollback


class Lane:
    """What `lane` is."""

    def __call__(self, connection: str, *, kind: str | None = None) -> Declared:
        """Name a connection whose work is auxiliary: its lane commits or rolls back by itself."""
        return Declared(connection=connection, mode=ResourceMode.LANE, kind=kind)

    def commit(self, resource: str, **options: Any) -> LaneCommit:
        """Make the task that commits the open unit of a lane while the flow goes on."""
        from txsaga.provider.operators.lane import LaneCommit

        return LaneCommit(task_id=options.pop("task_id", f"commit_{resource}"), resource=resource, **options)

    def rollback(self, resource: str, **options: Any) -> LaneRollback:
        """Make the task that rolls the open unit of a lane back while the flow goes on."""
        from txsaga.provider.operators.lane import LaneRollback

        return LaneRollback(task_id=options.pop("task_id", f"roll_back_{resource}"), resource=resource, **options)


lane = Lane()
