"""The ports of consuming: claims of the work style, groups, dead letters, the log, cursors."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from txsaga.consume.claim import Burial, Claim, ClaimHold, ConsumerGroup, Policy, Style, Unread
from txsaga.consume.dead_letter import DeadLetter
from txsaga.core.records import Bounds, ClaimedQueue, Intent, LogEntry, TickResult
from txsaga.errors import TxSagaError


class Claims(Protocol):
    """Claims, in addition to the cursors. The store's clock decides; an expired claim is lost to its member.

    A cursor is after everything that was ever claimed; what of it is not done is in claims.
    """

    def take_new(self, group: str, qids: Sequence[int], after: int, limit: int, hold: ClaimHold) -> Claim | None:
        """Claim up to `limit` messages that were never claimed, of the first free queue after `after`."""

    def take_due(self, group: str, qids: Sequence[int], limit: int, hold: ClaimHold) -> Sequence[Claim]:
        """Claim messages that were put back or whose claim expired and that are due, raising their attempts.

        A message claimed before is delivered alone: if it kills its member, no other message is affected. An expired
        run is split. A message in line is delivered once no earlier one has its key.
        """

    def unread(self, group: str, qids: Sequence[int], after: int, limit: int, window: int) -> Unread | None:
        """Return messages to be lined up, of the first queue after `after` that has less than `window` in claims."""

    def line_up(self, group: str, found: Unread, keys: Sequence[int | None]) -> bool:
        """Put unread messages into claims without a holder, each with its key; False when a rival was first."""

    def ack(self, claims: Sequence[Claim]) -> Sequence[TxSagaError | None]:
        """Remove the open messages of these claims from the group; `ClaimLost` in the place of each that is lost.

        A message acknowledged, put back or bound earlier is lost to its claim; the claim's other messages are done.
        """

    def extend(self, claim: Claim, by: timedelta) -> None:
        """Extend a claim to this long from now; `ClaimLost` when it is lost."""

    def put_back(self, claim: Claim, delay: timedelta, cause: str) -> None:
        """Put the one open message of a claim back, with the cause; `ClaimLost` when it is lost."""

    def give_back(self, claim: Claim) -> None:
        """Put messages back at once, as if they had not been claimed; a lost claim is ignored."""

    def bury(self, claim: Claim, burial: Burial) -> None:
        """Remove the one open message of a claim from the group, to a backout queue or the dead letters.

        Both happen in one commit, with the history; `ClaimLost` when the claim is lost.
        """

    def drop(self, claim: Claim) -> None:
        """Remove the one open message of a claim from the group for good; `ClaimLost` when it is lost."""


class ConsumerGroups(Protocol):
    """The consumer groups of a store."""

    def open(self, name: str, style: Style, policy: Policy) -> ConsumerGroup:
        """Register a group, or find it; the policy applies only to a new one. The group is marked as seen.

        `GroupKindMismatch` for a group of the other style: a cursor can't be moved in both.
        """

    def find(self, name: str) -> ConsumerGroup | None:
        """Return a registered group."""

    def touch(self, name: str) -> ConsumerGroup:
        """Mark the group as seen, at most once a minute; `UnknownGroup` if it expired meanwhile."""

    def expire(self) -> Sequence[str]:
        """Delete groups in which no member was seen for their expiry time, with cursors and claims; return their names.

        A group with a live member, claimed messages or messages bound to a transaction counts as seen. All dead letters
        stay.
        """

    def all(self) -> Sequence[ConsumerGroup]:
        """Return all groups by name."""

    def alter(self, name: str, changes: Mapping[str, object]) -> ConsumerGroup:
        """Change only the named parts of a group's policy; `UnknownGroup` for one that is not registered."""


class DeadLetterStore(Protocol):
    """Messages that ran out of attempts, by group."""

    def list(self, group: str | None, limit: int) -> Sequence[DeadLetter]:
        """Return dead letters, newest first; of all groups if none is named."""

    def ids(self, group: str, after: int, limit: int) -> Sequence[int]:
        """Return numbers of a group's letters after a number, oldest first."""

    def get(self, id: int) -> DeadLetter | None:
        """Return one letter."""

    def replay(self, ids: Sequence[int]) -> int:
        """Redeliver letters to their groups, with their history and no attempts; return how many."""

    def purge(self, ids: Sequence[int]) -> int:
        """Delete letters for good; return how many there were."""


class Log(Protocol):
    """Offsets of committed messages."""

    def tick(self, limit: int) -> TickResult | None:
        """Assign offsets to decisions that became visible since the last tick, in (commit, number) order.

        None when a rival was first: nothing was written. A tick without news writes nothing.
        """

    def fetch(self, qid: int, offset: int, limit: int, end: int = 2**62) -> Sequence[LogEntry]:
        """Return up to `limit` chunks from the one that holds `offset`, none that begins at or after `end`."""

    def bounds(self, qids: Sequence[int]) -> Mapping[int, Bounds]:
        """Return tail and head of queues."""

    def offset_at(self, qid: int, moment: datetime) -> int:
        """Return the first offset published at or after a moment."""

    def wait(self, seconds: float) -> bool:
        """Wait for news; True when a tick announced some. Only a hint: the log is authoritative."""

    def extend_partitions(self, ahead: int) -> int:
        """Ensure partitions for numbers up to `ahead` beyond the newest; return how many were added."""

    def drop_partitions(self) -> int:
        """Drop partitions in which everything is settled, acknowledged and read, past its topic's retention.

        Parked transactions and messages due far ahead don't keep one; they stay, and are found as before. Return how
        many partitions went, including those that left something behind.
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
        """Own a queue, with a raised epoch.

        None while a live member owns it or an intent is open on it, and without a lease on its topic.
        """

    def release(self, group: str, member: str, qid: int) -> None:
        """Give a queue back."""

    def advance(self, claim: ClaimedQueue, member: str, offset: int) -> ClaimedQueue:
        """Move a cursor; the same move again is no error.

        `LeaseLost` unless owner, epoch and offset are still the claim's, and while an intent is open: a member that
        does not know the cursor's position would skip unread messages.
        """

    def reset(self, group: str, positions: Mapping[int, int]) -> None:
        """Move cursors, by queue, and drop the claims there; all of them or none.

        `GroupInUse` while a live member owns one of the queues or holds messages of one, and while a transaction is
        bound to one.
        """

    def forget(self, group: str, qids: Collection[int]) -> None:
        """Drop a group's cursors and claims on these queues, where it has any; all of them or none.

        `GroupInUse` as for `reset`. Messages replayed there become dead letters again.
        """

    def intent_on(self, group: str, qid: int) -> Intent | None:
        """Return the open intent on a queue."""
