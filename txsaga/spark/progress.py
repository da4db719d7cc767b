"""
Progress of a session, line by line: which stages are under way, and how many of their tasks are done.

Whoever waits for a job sees that it moves. It only looks; if it stops, the job goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from txsaga.spark.detached import Beside

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY = 5.0


class StageProgress(Beside):
    """Tells about a session as long as the block lasts."""

    def __init__(self, spark: SparkSession, tell: Callable[[str], None], every: float = EVERY) -> None:
        super().__init__(every)
        self._context: Any = getattr(spark, "sparkContext", None)  # a client of Connect has none
        self._tell, self._told = tell, ""

    def look(self) -> None:
        """Tell what is under way, where that is news."""
        said = "" if self._context is None else stages(self._context.statusTracker())
        if said and said != self._told:
            self._tell(said)
            self._told = said


def stages(tracker: Any) -> str:
    """Say which stages are under way."""
    found = [info for each in sorted(tracker.getActiveStageIds()) if (info := tracker.getStageInfo(each)) is not None]
    return ", ".join(f"stage {each.stageId}: {each.numCompletedTasks} of {each.numTasks} tasks" for each in found)
