"""The work style: messages claimed one by one or in runs, acknowledged, put back, buried."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from txsaga.consume.claim import Burial, Claim, ClaimHold, ConsumerGroup, Policy, Style, Unread
from txsaga.consume.dead_letter import DeadLetter
from txsaga.core.records import Bounds, ClaimedQueue, Intent, LogEntry, TickResult
from txsaga.errors import TxSagaError


class Claims(Protocol):
    """Claims beside the cursors. The store's clock decides; what ran out is lost to its member.

    A cursor stands behind everything that was handed out once; what is not done of it lies in claims.
    """

    def take_new(self, group: str, qids: Sequence[int], after: int, limit: int, hold: ClaimHold) -> Claim | None:
        """Claim up to `limit` messages that nobody has taken yet, of the first free queue behind `after`."""

    def take_due(self, group: str, qids: Sequence[int], limit: int, hold: ClaimHold) -> Sequence[Claim]:
        """Claim messages that were put back or ran out and whose time has come, raising their attempts.

        What was taken before comes alone: whatever it did to its member, it does to none of its neighbours. A run
        that ran out comes apart. Messages that are lined up come once nothing before them has their key.
        """

    def unread(self, group: str, qids: Sequence[int], after: int, limit: int, window: int) -> Unread | None:
        """Find messages to be lined up, of the first queue behind `after` that has less than `window` in claims."""

    def line_up(self, group: str, found: Unread, keys: Sequence[int | None]) -> bool:
        """Put unread messages into claims that nobody holds, each with its key; False when a rival was first."""

    def ack(self, claims: Sequence[Claim]) -> Sequence[TxSagaError | None]:
        """Take the open messages of these claims off the group; `ClaimLost` in the place of each that is lost.

        A message that was acknowledged, put back or bound before is lost to its claim; the others of it are done.
        """

    def extend(self, claim: Claim, by: timedelta) -> None:
        """Hold a claim for so long from now on; `ClaimLost` when it is lost."""

    def put_back(self, claim: Claim, delay: timedelta, cause: str) -> None:
        """Let the one open message of a claim come again, with the cause; `ClaimLost` when it is lost."""

    def give_back(self, claim: Claim) -> None:
        """Let messages come again at once, as if they had not been taken; what is lost is nobody's loss."""

    def bury(self, claim: Claim, burial: Burial) -> None:
        """Take the one open message of a claim off the group, into a backout queue or to the dead letters.

        Both are done in one commit, history and all; `ClaimLost` when the claim is lost.
        """

    def drop(self, claim: Claim) -> None:
        """Take the one open message of a claim off the group for good; `ClaimLost` when it is lost."""


class ConsumerGroups(Protocol):
    """The consumer groups of a store."""

    def open(self, name: str, style: Style, policy: Policy) -> ConsumerGroup:
        """Register a group, or find it; a policy counts only for one that is new. It counts as seen.

        `GroupKindMismatch` for a group of the other style: a cursor can't be moved in both.
        """

    def find(self, name: str) -> ConsumerGroup | None:
        """Return a group that is registered."""

    def touch(self, name: str) -> ConsumerGroup:
        """Note that a member is at work, at most every minute; `UnknownGroup` for one that expired meanwhile."""

    def expire(self) -> Sequence[str]:
        """Delete groups that nobody was seen in for as long as they say, with their cursors and claims; name them.

        One with a living member, with messages in somebody's hands or bound to a transaction counts as seen. The
        dead letters of all stay.
        """

    def all(self) -> Sequence[ConsumerGroup]:
        """Return all groups by name."""

    def alter(self, name: str, changes: Mapping[str, object]) -> ConsumerGroup:
        """Change parts of a group's policy, by name, and no other part; `UnknownGroup` for one not registered."""


class DeadLetterStore(Protocol):
    """Messages whose work failed to the end, by group."""

    def list(self, group: str | None, limit: int) -> Sequence[DeadLetter]:
        """Return dead letters, newest first; of all groups where none is named."""

    def ids(self, group: str, after: int, limit: int) -> Sequence[int]:
        """Return numbers of a group's letters behind a number, oldest first."""

    def get(self, id: int) -> DeadLetter | None:
        """Return one."""

    def replay(self, ids: Sequence[int]) -> int:
        """Let letters come to their group again, with their history and no attempts; return how many came."""

    def purge(self, ids: Sequence[int]) -> int:
        """Delete letters for good; return how many there were."""


class Log(Protocol):
    """Offsets of committed messages."""

    def tick(self, limit: int) -> TickResult | None:
        """Give offsets to decisions that became visible since the last tick, in (commit, number) order.

        None when a rival was first: nothing was written. A tick without news writes nothing.
        """

    def fetch(self, qid: int, offset: int, limit: int, end: int = 2**62) -> Sequence[LogEntry]:
        """Return up to `limit` chunks from the one that holds `offset` on, none that begins at `end` or behind it."""

    def bounds(self, qids: Sequence[int]) -> Mapping[int, Bounds]:
        """Return tail and head of queues."""

    def offset_at(self, qid: int, moment: datetime) -> int:
        """Return the first offset that was given out at or after a moment."""

    def wait(self, seconds: float) -> bool:
        """Wait for news; True when a tick announced some. Only a hint: the log is the truth."""

    def extend_partitions(self, ahead: int) -> int:
        """Make sure that numbers up to `ahead` beyond the newest have a partition; return how many were added."""

    def drop_partitions(self) -> int:
        """Drop partitions in which everything is settled, acknowledged and read, past its topic's retention.

        What is parked or due far ahead holds none; it stays, and is found as before. Return how many partitions went,
        those that left something behind included.
        """


class Queues(Protocol):
    """Cursors per group and queue, fenced by owner and epoch. The store's clock decides leases."""

    def renew(self, group: str, member: str, topics: Sequence[str], ttl: timedelta) -> Mapping[str, Sequence[str]]:
        """Take or renew a member's lease on each topic; return the live members of each, sorted."""

    def leave(self, group: str, member: str, topics: Sequence[str]) -> None:
        """Drop a member's leases and give back its queues of these topics."""

    def create_cursors(self, group: str, starts: Mapping[int, int]) -> None:
        """Create cursors that do not exist yet, at these offsets."""

    def acquire(self, group: str, member: str, qid: int) -> ClaimedQueue | None:
        """Own a queue with a raised epoch.

        None while a live member owns it or an intent is open on it, and without a lease on its topic.
        """

    def release(self, group: str, member: str, qid: int) -> None:
        """Give a queue back."""

    def advance(self, claim: ClaimedQueue, member: str, offset: int) -> ClaimedQueue:
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
