"""Followers: who waits for the commits of flows, in the host that runs them."""

from datetime import datetime
from typing import Protocol

from txsaga.model.follow_up import FollowUp


class Followers(Protocol):
    """The followers of one host."""

    @property
    def name(self) -> str:
        """The name of the host; none where it has none."""

    def tell(self, committed: FollowUp, since: datetime) -> bool:
        """Tell them once; False where the run may still do it. `since`: nobody was told before that moment."""
