"""A topic of a real RocketMQ: what its consumers see, and a shelf of items in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from tests.services.rocketmq import RocketMqServer
from txsaga.core.decision import Decision
from txsaga.flows.branch import BranchId
from txsaga.gateway.native import OutgoingHalves, RocketMQ, RocketMQParticipant
from txsaga.gateway.remoting import ask
from txsaga.store.store import Store
from txsaga.testing.participant_contract import new_branch

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


class TopicShelf:
    """Items that consumers see."""

    def __init__(self, topic: RocketMQTopic, participant: RocketMQParticipant, store: Store) -> None:
        self._topic, self._participant, self._store = topic, participant, store

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

    def cut(self, handle: object) -> None:
        """Do nothing: there is no session."""

    def overrule(self, branch: BranchId, decision: Decision) -> None:
        """Decide a held branch by hand."""
        self._participant.finish(branch, decision)

    def kept(self, branch: BranchId) -> bool:
        """Tell whether its reservation is kept."""
        return self._store.reservations.find(branch) is not None

    @contextmanager
    def foreign(self) -> Iterator[None]:
        """Hold a reservation of another participant."""
        theirs, name = new_branch(), uuid4().hex
        self._store.reservations.begin(theirs, name, {})
        self._store.reservations.hold(theirs)
        yield
        assert list(self._store.reservations.held(name, theirs.store)) == [theirs]
