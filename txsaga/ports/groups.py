"""Consumer groups: their style and their policy. And the dead letters that each group left behind."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from txsaga.model.claim import ConsumerGroup, Policy, Style
from txsaga.model.dead_letter import DeadLetter


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


class DeadLetters(Protocol):
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
