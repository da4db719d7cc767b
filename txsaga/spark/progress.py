"""
Progress of a session, line by line: which stages are under way, and how many of their tasks are done.

Whoever waits for a job sees that it moves. It only looks; if it stops, the job goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY = 5.0


class Progress:
    """Tells about a session as long as the block lasts."""

    def __init__(self, spark: SparkSession, tell: Callable[[str], None], every: float = EVERY) -> None:
        self._spark, self._tell, self._every = spark, tell, every
        self._over, self._told = Event(), ""
        self._thread = Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        """Begin to tell."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Tell no more."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        tracker: Any = getattr(self._spark, "sparkContext", None)
        while tracker is not None and not self._over.wait(self._every):
            said = stages(tracker.statusTracker())
            if said and said != self._told:
                self._tell(said)
                self._told = said


def stages(tracker: Any) -> str:
    """Say which stages are under way."""
    found = [info for each in sorted(tracker.getActiveStageIds()) if (info := tracker.getStageInfo(each)) is not None]
    return ", ".join(f"stage {each.stageId}: {each.numCompletedTasks} of {each.numTasks} tasks" for each in found)
