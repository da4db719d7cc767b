"""
Progress of a session, line by line: the running stages, and how many of their tasks are done.

It shows that a job advances. It only observes; if it stops, the job continues.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from txsaga.spark.detached import PeriodicCheck

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY = 5.0


class StageProgress(PeriodicCheck):
    """Reports on a session while the block runs."""

    def __init__(self, spark: SparkSession, tell: Callable[[str], None], every: float = EVERY) -> None:
        super().__init__(every)
        self._context: Any = getattr(spark, "sparkContext", None)  # a Connect client has none
        self._tell, self._told = tell, ""

    def look(self) -> None:
        """Report the running stages, if they have changed."""
        said = "" if self._context is None else stages(self._context.statusTracker())
        if said and said != self._told:
            self._tell(said)
            self._told = said


def stages(tracker: Any) -> str:
    """Describe the running stages."""
    found = [info for each in sorted(tracker.getActiveStageIds()) if (info := tracker.getStageInfo(each)) is not None]
    return ", ".join(f"stage {each.stageId}: {each.numCompletedTasks} of {each.numTasks} tasks" for each in found)
