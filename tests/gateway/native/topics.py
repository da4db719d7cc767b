"""A topic of a real RocketMQ: what its consumers see, and a shelf of items in it."""

from __future__ import annotations

import re

from tests.resources.callables.tills import ReservedShelf
from tests.services.rocketmq import RocketMqServer
from txsaga.core.decision import Decision
from txsaga.gateway.native import OutgoingHalves, RocketMQ, RocketMQParticipant
from txsaga.gateway.remoting import ask
from txsaga.store.store import Store

PULL_MESSAGE = 11
EMPTY = (19, 20, 21)
"""Codes of an answer without messages."""
SUBSCRIBED = {"sysFlag": "4", "subscription": "*", "subVersion": "0", "expressionType": "TAG"}
FIRST = {"queueId": "0", "maxMsgNums": "32", "commitOffset": "0", "suspendTimeoutMillis": "0"}


class RocketMQTopic:
    """One topic with one queue."""

    def __init__(self, server: RocketMqServer, name: str) -> None:
        self.server, self.name = server, name

    def registered(self, **given: object) -> RocketMQ:
        """Return the topic as a user registers it."""
        options = {"name_server": self.server.name_server, "undecided": 10.0, **given}
        return RocketMQ(self.server.endpoint, topic=self.name, **options)  # type: ignore[arg-type]

    def items(self) -> list[int]:
        """Return the items of the messages that a consumer gets, in order: `item=7;` is one."""
        found = list[int]()
        while page := self._page(len(found)):
            found += page
        return found

    def _page(self, offset: int) -> list[int]:
        asked = {"consumerGroup": "tests", "topic": self.name, "queueOffset": str(offset), **SUBSCRIBED, **FIRST}
        return [
            int(found) for found in re.findall(rb"item=(\d+);", ask(self.server.broker, PULL_MESSAGE, asked, *EMPTY))
        ]


class TopicShelf(ReservedShelf):
    """Items that consumers see."""

    def __init__(self, topic: RocketMQTopic, participant: RocketMQParticipant, store: Store) -> None:
        super().__init__(participant, store)
        self._topic = topic

    def put(self, handle: object, item: int) -> None:
        """Send an item."""
        assert isinstance(handle, OutgoingHalves)
        handle.send(text=f"item={item};")

    def items(self) -> set[int]:
        """Return the items that consumers see."""
        found = self._topic.items()
        assert len(found) == len(set(found)), "delivered twice"
        return set(found)

    def spoil(self, handle: object) -> None:
        """Cancel a branch behind its back."""
        assert isinstance(handle, OutgoingHalves)
        self._participant.finish(handle.branch, Decision.ROLLBACK)
