"""
Administration of a store: topics, groups, checks, dead letters, replays.

The broker inherits it; it has no state of its own. If none of these is ever called, topics and groups are as their
first users created them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Unpack

from txsaga.checkback.profile import CheckOptions, kept
from txsaga.consume.claim import ConsumerGroup, Policy, PolicyChanges
from txsaga.consume.groups import DeadLetters, Move, alter_group, create_group, leave_topic, reset_group
from txsaga.consume.queue_reader import Start
from txsaga.core import facts
from txsaga.core.arguments import check_kind, check_text
from txsaga.core.identity import check_txid
from txsaga.core.kernel import OfBroker
from txsaga.core.records import KINDS, Group, ProducerKind
from txsaga.core.topic import Topic, TopicType, check_name, check_retention_bytes, seconds_of, type_of
from txsaga.errors import ConfigError
from txsaga.inspect.overview import Position
from txsaga.messages.replay import ReplayResult, Replays

CHANGEABLE = PolicyChanges.__optional_keys__


class Administration(OfBroker):
    """The administrative methods of a broker."""

    def _start(self) -> None:
        """Start the roles; the broker overrides this."""

    @property
    def topics(self) -> Sequence[Topic]:
        """The topics of this store, by name."""
        return self._kernel.store.registry.topics()

    def create_topic(
        self,
        name: str,
        type: TopicType | str = TopicType.NORMAL,
        *,
        queues: int = 8,
        retention: timedelta | None = None,
        retention_bytes: int | None = None,
    ) -> Topic:
        """Create a topic; repeating it is not an error."""
        create = self._kernel.topics.create
        return create(name, type, queues=queues, retention=retention, retention_bytes=retention_bytes)

    def alter_topic(
        self,
        name: str,
        *,
        retention: timedelta | None = None,
        retention_bytes: int | None = None,
        type: TopicType | str | None = None,
    ) -> Topic:
        """Change a topic's retention time and size, an omitted one is unlimited; and the type of an empty topic."""
        check_name(name)
        check_retention_bytes(retention_bytes)
        seconds, kind = seconds_of(retention), None if type is None else type_of(type)
        with self._kernel.announce.around(facts.Registering, about=f"topic {name}"):
            return self._kernel.store.registry.alter_topic(name, seconds, retention_bytes, kind)

    def delete_topic(self, name: str) -> int:
        """Delete a topic with its messages, unless something needs it; return how many messages there were."""
        check_name(name)
        with self._kernel.announce.around(facts.Registering, about=f"topic {name}"):
            return self._kernel.store.registry.delete_topic(name)

    def purge_topic(self, name: str) -> int:
        """Drop the messages of a topic, also for its groups, which must be without members; return how many."""
        check_name(name)
        with self._kernel.announce.around(facts.Positioning, about=f"topic {name}"):
            return self._kernel.store.queues.purge(self._kernel.store.registry.topic(name).qids)

    def reject_transactions(self, rejecting: bool) -> None:
        """Make every process of this store refuse new halves and keyed transactions, or accept them again."""
        check_kind(rejecting, bool, "rejecting", "give True or False")
        self._kernel.store.registry.reject_transactions(rejecting)

    def replay(
        self, txid: int, *, key: str | None = None, who: str = "a program", why: str = "replayed", dry_run: bool = False
    ) -> ReplayResult:
        """Commit the messages of a rolled back transaction in a new one, once; a dry run only returns which."""
        check_txid(txid)
        for said, what in ((who, "who"), (why, "why")):
            check_text(said, what, "it is kept with the replay: give a text")
        replays = Replays(self._kernel)
        if dry_run:
            return replays.plan(txid, key)
        self._start()
        return replays.run(txid, key, who=who, why=why)

    @property
    def cluster(self) -> str | None:
        """The cluster that this store belongs to, if one is set."""
        return self._kernel.store.registry.cluster

    def join_cluster(self, name: str | None) -> None:
        """Set permanently which cluster this store belongs to; it can't be mixed with brokers of another cluster."""
        if name is not None:
            check_name(name, what="cluster", known=lambda: self.cluster == name)
        with self._kernel.announce.around(facts.Registering, about=f"cluster {name}"):
            self._kernel.store.registry.join_cluster(name)

    def set_checks(self, group: str, **changes: Unpack[CheckOptions]) -> Group:
        """Override when and how often a producer group is checked, named as in `CheckProfile`; None resets."""
        check_text(group, "the producer group", "give its name")
        said = kept(changes)
        with self._kernel.announce.around(facts.Registering, about=f"checks of {group}"):
            return self._kernel.store.registry.alter_checks(group, said)

    def set_kind(self, group: str, kind: ProducerKind) -> Group:
        """Change which producers a group takes; `GroupInUse` while it has undecided transactions or live members."""
        check_text(group, "the producer group", "give its name")
        if kind not in KINDS:
            raise ConfigError(f"{kind!r} is no kind of producer group; give one of {', '.join(KINDS)}")
        with self._kernel.announce.around(facts.Registering, about=f"producer group {group}"):
            return self._kernel.store.registry.alter_kind(group, KINDS[kind])

    @property
    def dead_letters(self) -> DeadLetters:
        """The dead letters of consumer groups."""
        return DeadLetters(self._kernel)

    def create_group(
        self,
        name: str,
        *,
        ordered: bool = False,
        max_attempts: int | None = 16,
        backout: str | None = None,
        dead_letters: bool = True,
        first_retry: timedelta = timedelta(seconds=1),
        longest_retry: timedelta = timedelta(minutes=5),
        expires: timedelta | None = timedelta(days=30),
    ) -> ConsumerGroup:
        """Register a group whose members process messages one by one; an existing group is unchanged."""
        policy = Policy(
            ordered=ordered,
            max_attempts=max_attempts,
            backout=backout,
            dead_letters=dead_letters,
            first_retry=first_retry,
            longest_retry=longest_retry,
            expires=expires,
        )
        return create_group(self._kernel, name, policy)

    def alter_group(self, name: str, **changes: Unpack[PolicyChanges]) -> ConsumerGroup:
        """Change what `create_group` sets, except `ordered`, or pause the group (`paused=True`)."""
        if unknown := changes.keys() - CHANGEABLE:
            raise ConfigError(f"{', '.join(sorted(unknown))} can't be altered; {', '.join(sorted(CHANGEABLE))} can")
        return alter_group(self._kernel, name, changes)

    def delete_group(self, name: str) -> None:
        """Delete a group without members, with its positions and retries; its dead letters stay."""
        check_text(name, "the consumer group", "give its name")
        with self._kernel.announce.around(facts.Registering, about=f"consumer group {name}"):
            self._kernel.store.groups.delete(name)

    def reset_group(self, name: str, start: Start, *, topic: str | None = None, dry_run: bool = True) -> Sequence[Move]:
        """Move an inactive group's position in its topics, or in one; a dry run only returns the moves."""
        return reset_group(self._kernel, name, topic, start, dry_run=dry_run)

    def leave_topic(self, group: str, topic: str, *, dry_run: bool = True) -> Sequence[Position]:
        """Remove an inactive group from a topic; a dry run only returns its positions there."""
        return leave_topic(self._kernel, group, topic, dry_run=dry_run)
