"""Consumer groups: who owns which queue, and how far the group has read."""

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from txsaga.model.records import Claimed, Intent


class Queues(Protocol):
    """Cursors per group and queue, fenced by owner and epoch. The store's clock decides leases."""

    def renew(self, group: str, member: str, topics: Sequence[str], ttl: timedelta) -> Mapping[str, Sequence[str]]:
        """Take or renew a member's lease on each topic; return the live members of each, sorted."""

    def leave(self, group: str, member: str, topics: Sequence[str]) -> None:
        """Drop a member's leases and give back its queues of these topics."""

    def create_cursors(self, group: str, starts: Mapping[int, int]) -> None:
        """Create cursors that do not exist yet, at these offsets."""

    def acquire(self, group: str, member: str, qid: int) -> Claimed | None:
        """Own a queue with a raised epoch.

        None while a live member owns it or an intent is open on it, and without a lease on its topic.
        """

    def release(self, group: str, member: str, qid: int) -> None:
        """Give a queue back."""

    def advance(self, claim: Claimed, member: str, offset: int) -> Claimed:
        """Move a cursor; the same again is no error.

        `LeaseLost` unless owner, epoch and offset are still the claim's, and while an intent is open: a member
        that does not know where the cursor stands would skip what was never read.
        """

    def reset(self, group: str, positions: Mapping[int, int]) -> None:
        """Put cursors elsewhere, by queue, and forget the claims there; all of them or none.

        `GroupInUse` while a member lives that owns one of the queues, or holds messages of one, and while a
        transaction is bound to one.
        """

    def forget(self, group: str, qids: Collection[int]) -> None:
        """Drop a group's cursors and claims on these queues, where it has any; all of them or none.

        `GroupInUse` as `reset` does. What was replayed there is a dead letter again.
        """

    def intent_on(self, group: str, qid: int) -> Intent | None:
        """Return the intent that is open on a queue."""
