"""
Topics by name, remembered: a topic's type and queues never change, so one look is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count

from txsaga.engine.announce import Announcer
from txsaga.errors import UnknownTopic
from txsaga.model import facts
from txsaga.model.message import Message
from txsaga.model.topic import Topic, TopicType, Way, check_name
from txsaga.ports.registry import Registry

QUEUES = 8


class Topics:
    """The topics of a store, and which queue a message goes to."""

    def __init__(self, registry: Registry, announce: Announcer, *, auto_create: bool = False) -> None:
        self._registry, self._announce = registry, announce
        self._auto_create = auto_create
        self._known: dict[tuple[str, Way], Topic] = {}
        self._turn: Callable[[], int] = count().__next__

    def create(
        self,
        name: str,
        *,
        type: TopicType = TopicType.NORMAL,
        queues: int = QUEUES,
        retention_seconds: int | None = None,
        retention_bytes: int | None = None,
    ) -> Topic:
        """Create a topic under a name that users may use."""
        check_name(name)
        with self._announce.around(facts.Registering, facts.Registered, about=f"topic {name}"):
            return self._registry.create_topic(name, type, queues, retention_seconds, retention_bytes)

    def open(self, name: str, way: Way) -> Topic:
        """Return a topic that may be sent to in this way."""
        known = self._known.get((name, way))
        if known is None:
            topic = self._look_up(name, way)
            topic.check(way)
            known = self._known[name, way] = topic
        return known

    def queue_for(self, message: Message, way: Way) -> int:
        """Choose the queue of a message."""
        topic = self.open(message.topic, way)
        key = message.ordering_key or message.key
        return topic.queue_for(key, 0 if key is not None else self._turn())

    def by_queue(self, names: list[str]) -> Mapping[int, tuple[Topic, int]]:
        """Return all queues of some topics: number to (topic, index)."""
        topics = [self._registry.topic(name) for name in names]
        return {qid: (topic, index) for topic in topics for index, qid in enumerate(topic.qids)}

    def _look_up(self, name: str, way: Way) -> Topic:
        check_name(name)
        try:
            return self._registry.topic(name)
        except UnknownTopic:
            if not self._auto_create:
                raise
        type = TopicType.TRANSACTION if way is Way.HALF else TopicType.NORMAL
        return self.create(name, type=type)
