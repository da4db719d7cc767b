"""
Topics by name, cached: what replaces a topic has other queues, and the store refuses what is sent to the old ones.

Every message is admitted here, however it is sent. An admitted message can be stored, fits the type of its topic, and
has a queue; if a send bypassed this, an ordered topic could get messages without an ordering key and a delay topic
would deliver at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from itertools import count
from math import ceil
from typing import TYPE_CHECKING

from txsaga.checkback.profile import CheckProfile, chosen
from txsaga.core import facts
from txsaga.core.announcer import Announcer
from txsaga.core.fibers import run_blocking
from txsaga.core.layout import lay_out_one
from txsaga.core.message import Message
from txsaga.core.records import Group, Half, Row
from txsaga.core.topic import (
    SendKind,
    Topic,
    TopicChanges,
    TopicType,
    check_name,
    check_queues,
    check_retention_bytes,
    seconds_of,
    type_of,
)
from txsaga.core.validation import validate
from txsaga.errors import InvalidMessage, UnknownTopic

if TYPE_CHECKING:
    from txsaga.messages.registry_store import Registry


logger = logging.getLogger("txsaga")

QUEUES = 8


class Topics:
    """The topics of a store; chooses the queue of a message."""

    def __init__(self, registry: Registry, announce: Announcer, *, auto_create: bool = False) -> None:
        self._registry, self._announce = registry, announce
        self._auto_create = auto_create
        self._known: dict[tuple[str, SendKind], Topic] = {}
        self._as_of = TopicChanges.count
        self.turn: Callable[[], int] = count().__next__

    def create(
        self,
        name: str,
        type: TopicType | str = TopicType.NORMAL,
        *,
        queues: int = QUEUES,
        retention: timedelta | None = None,
        retention_bytes: int | None = None,
    ) -> Topic:
        """Create a topic with a name allowed for users."""
        check_name(name, known=lambda: any(topic.name == name for topic in self._registry.topics()))
        kind, seconds = type_of(type), seconds_of(retention)
        check_queues(queues)
        check_retention_bytes(retention_bytes)
        with self._announce.around(facts.Registering, about=f"topic {name}"):
            return self._registry.create_topic(name, kind, queues, seconds, retention_bytes)

    def open(self, name: str, way: SendKind, *, scheduled: bool = False) -> Topic:
        """Return a topic that allows this kind of send."""
        if self._as_of != TopicChanges.count:
            self._as_of = TopicChanges.count
            self._known.clear()
        known = self._known.get((name, way))
        if known is None:
            topic = run_blocking(lambda: self._look_up(name, way, scheduled))
            topic.check(way)
            known = self._known[name, way] = topic
        return known

    def admit(self, message: Message, way: SendKind) -> tuple[Message, int]:
        """Check a message and choose its queue; a half loses its delay, with a warning."""
        validate(message)
        scheduled = message.scheduled
        topic = self.open(message.topic, way, scheduled=scheduled)
        if way is SendKind.HALF and scheduled:  # it could be due before it is decided
            logger.warning("message to %s: a half message has no delay, so the delay was dropped", message.topic)
            message, scheduled = message.unscheduled(), False
        topic = self._fitting(topic, way, ordered=message.ordering_key is not None, scheduled=scheduled)
        key = message.key if message.ordering_key is None else message.ordering_key
        return message, topic.queue_for(key, 0 if key is not None else self.turn())

    def half(self, group: Group, message: Message, immunity: object) -> tuple[Message, Half]:
        """Lay out a message as a half with its immunity; return the admitted message too."""
        message, qid = self.admit(message, SendKind.HALF)
        own = admit_immunity(group, chosen(immunity, message.headers))
        return message, Half(group.id, [Row(qid, 0, 1, lay_out_one(message))], None, own)

    def admit_many(self, name: str, way: SendKind) -> Topic:
        """Check columns of messages, which have neither ordering keys nor delays; return their topic."""
        check_name(name)
        return self._fitting(self.open(name, way), way, ordered=False)

    def by_queue(self, names: list[str]) -> Mapping[int, tuple[Topic, int]]:
        """Return all queues of some topics, as number to (topic, index)."""
        topics = [self._registry.topic(name) for name in names]
        return {qid: (topic, index) for topic in topics for index, qid in enumerate(topic.qids)}

    def _fitting(self, topic: Topic, way: SendKind, *, ordered: bool, scheduled: bool = False) -> Topic:
        try:
            topic.admit(way, ordered=ordered, scheduled=scheduled)
        except InvalidMessage:  # it may have been replaced by one of another type
            self._known.pop((topic.name, way), None)
            topic = self.open(topic.name, way, scheduled=scheduled)
            topic.admit(way, ordered=ordered, scheduled=scheduled)
        return topic

    def _look_up(self, name: str, way: SendKind, scheduled: bool) -> Topic:
        check_name(name)
        try:
            return self._registry.topic(name)
        except UnknownTopic:
            if not self._auto_create:
                raise
        plain = TopicType.DELAY if scheduled and way is SendKind.PLAIN else TopicType.NORMAL
        return self.create(name, TopicType.TRANSACTION if way is SendKind.HALF else plain)


def admit_immunity(group: Group, seconds: int | None) -> int | None:
    """Return the effective immunity, for the end and for the check: at least the minimum age of its group.

    Raise if no check could ever follow it; warn if it outlasts `max_checks` intervals.
    """
    if seconds is None:
        return None
    profile = CheckProfile().of_group(group.checks)
    if seconds > profile.total_limit.total_seconds():
        raise InvalidMessage(
            f"immunity is {seconds} seconds, but group {group.name!r} gives a transaction up after "
            f"{profile.total_limit.total_seconds():.0f}: it would never be checked; choose a shorter one"
        )
    if seconds > profile.asking.total_seconds():
        logger.warning(
            "immunity %d s is longer than max_checks x interval (%d x %.0f s = %.0f s): the first check comes after it",
            seconds,
            profile.max_checks,
            profile.interval.total_seconds(),
            profile.asking.total_seconds(),
            extra={"group": group.name},
        )
    return max(seconds, ceil(profile.min_age.total_seconds()))
