"""What every client asks first: where a topic's queues are, and which of them to read. They are all here."""

from __future__ import annotations

import asyncio
from typing import Any

from txsaga.core.kernel import Kernel
from txsaga.core.topic import Topic
from txsaga.gateway import wire
from txsaga.gateway.messages import NUMBERS, name_of
from txsaga.gateway.status import CallRefused, Code, status

READ_WRITE = wire.number("Permission", "READ_WRITE")
BROKER = "txsaga"
ANY = -1
"""The number of the queue that stands for all: who reads shares them message by message."""


class RouteCalls:
    """Serves routes and signs of life."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    async def query_route(self, request: Any) -> Any:
        """Return the queues of a topic, reachable where the client asked."""
        topic = await self._topic(request.topic)
        queues = [queue(topic, at, request.endpoints) for at in range(len(topic.qids))]
        return wire.new("QueryRouteResponse", status=status(Code.OK), message_queues=queues)

    async def query_assignment(self, request: Any) -> Any:
        """Return what a push consumer reads."""
        name_of(request.group, "group")
        topic = await self._topic(request.topic)
        assigned = {"message_queue": queue(topic, ANY, request.endpoints)}
        return wire.new("QueryAssignmentResponse", status=status(Code.OK), assignments=[assigned])

    async def heartbeat(self, request: Any) -> Any:
        """Answer; a client is connected as long as its stream is."""
        if not request.client_type:
            raise CallRefused(Code.UNRECOGNIZED_CLIENT_TYPE, "the client does not say of which type it is")
        return wire.new("HeartbeatResponse", status=status(Code.OK))

    async def notify_client_termination(self, request: Any) -> Any:
        """Answer; the server ends the client's stream."""
        return wire.new("NotifyClientTerminationResponse", status=status(Code.OK))

    async def _topic(self, resource: Any) -> Topic:
        return await asyncio.to_thread(self._kernel.store.registry.topic, name_of(resource))


def queue(topic: Topic, at: int, endpoints: Any) -> Any:
    """Return one queue of a topic."""
    broker = {"name": BROKER, "endpoints": endpoints}
    accepts = [NUMBERS[topic.type]]
    fields = {"topic": {"name": topic.name}, "id": at, "permission": READ_WRITE, "broker": broker}
    return wire.new("MessageQueue", accept_message_types=accepts, **fields)
