"""The schedule: messages for later, each a half without a decision and the moment when it is due."""

from typing import Protocol


class Schedule(Protocol):
    """Messages that wait for their time, by the store's clock."""

    def commit_due(self, limit: int) -> int:
        """Commit up to `limit` messages that are due; return how many left the schedule.

        The ticks behind it give them offsets, in each queue in the order in which they were due, whatever order they
        were sent in. The first decision stands: one that was decided already only leaves. Nought where nothing is due,
        or where a rival is at it.
        """
        ...
