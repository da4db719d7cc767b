"""
The clients that are connected here, by the streams on which they can be asked and told.

A client says on its stream which topics it sends to, or which group it reads for, and gets the settings that hold for
it. While a client that sends half messages to a topic is connected, this process answers check-back for that topic.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from txsaga import errors
from txsaga.consume.claim import Policy
from txsaga.core.kernel import Kernel
from txsaga.core.message import MAX_BODY
from txsaga.core.topic import TopicType
from txsaga.gateway import wire
from txsaga.gateway.access import Caller
from txsaga.gateway.client_commands import PATIENCE
from txsaga.gateway.messages import name_of
from txsaga.gateway.status import CallRefused, Code, of_error, status

BATCH, LONG_POLL = 32, 20
"""What consumers get at once at most, and the seconds that empty calls of push consumers wait."""
ATTEMPTS = 3
"""How often clients try a send; those of half messages try once: a second half would be checked and committed too."""
TOPICS, UNREAD = 256, 64
"""Topics that a client may name, and commands that it may leave unread."""
SILENT = 60.0
"""Seconds without a call; clients send a heartbeat every ten seconds."""
PAUSES = 16
"""Redeliveries whose pauses a push consumer is told; it repeats the last one."""


class ConnectedClient:
    """One stream of a client."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.topics: frozenset[str] = frozenset()  # that it sends half messages to
        self.outbox: asyncio.Queue[Any] = asyncio.Queue(maxsize=UNREAD)
        self.seen = time.monotonic()
        self.settings: Any = wire.new("Settings")  # as it has told them, once they are accepted
        self._asked: dict[str, asyncio.Future[Any]] = {}  # by the nonce of the command

    def tell(self, command: Any) -> None:
        """Send it a command, unless it does not read."""
        with suppress(asyncio.QueueFull):
            self.outbox.put_nowait(command)

    async def ask(self, nonce: str, command: Any) -> Any:
        """Send it a command, and return the command that answers it; `TimeoutError` if none does."""
        answer = self._asked[nonce] = asyncio.get_running_loop().create_future()
        try:
            self.tell(command)
            async with asyncio.timeout(PATIENCE):
                return await answer
        finally:
            del self._asked[nonce]

    def answered(self, command: Any) -> None:
        """Pass on a command of the client that answers one of ours; any other is none of our business."""
        said = getattr(command, command.WhichOneof("command") or "status")
        waiting = self._asked.get(getattr(said, "nonce", ""))
        if waiting is not None and not waiting.done():
            waiting.set_result(command)

    def close(self) -> None:
        """End its stream."""
        if self.outbox.full():
            self.outbox.get_nowait()
        self.outbox.put_nowait(None)


class ConnectedClients:
    """All clients of this process."""

    def __init__(self, kernel: Kernel, begin: Callable[[str], None], end: Callable[[str], None]) -> None:
        self._kernel, self._begin, self._end = kernel, begin, end
        self._streams: dict[str, list[ConnectedClient]] = {}  # by the client's id
        self._served: set[str] = set()  # topics that this process answers check-back for
        self._serving = asyncio.Lock()
        self._turn = 0

    def __len__(self) -> int:
        return len(self._streams)

    def __contains__(self, id: str) -> bool:
        return id in self._streams

    @property
    def latest(self) -> Mapping[str, ConnectedClient]:
        """The stream of each client on which it was heard last."""
        return {each.caller.client: each for each in sorted(self._all(), key=lambda each: each.seen)}

    def senders(self, topic: str) -> Iterator[ConnectedClient]:
        """Yield those that send half messages to a topic, another one first each time."""
        found = [each for each in self._all() if topic in each.topics]
        self._turn += 1
        for at in range(len(found)):
            yield found[(self._turn + at) % len(found)]

    def saw(self, caller: Caller) -> None:
        """Take a call, a heartbeat for example, as a sign that a client lives."""
        for each in self._streams.get(caller.client, ()):
            if each.caller == caller:
                each.seen = time.monotonic()

    def close_silent(self) -> None:
        """End the streams of clients that have not called for long: their network is gone."""
        self._close([each for each in self._all() if time.monotonic() - each.seen > SILENT])

    def leave(self, caller: Caller) -> None:
        """End the streams of a client: one that leaves may not do that itself."""
        self._close([each for each in self._streams.get(caller.client, ()) if each.caller == caller])

    def _close(self, streams: Sequence[ConnectedClient]) -> None:
        """Take streams out at once: one whose network is gone does not end when it is told to."""
        for each in streams:
            self._forget(each)
            each.close()

    def _forget(self, stream: ConnectedClient) -> None:
        known = self._streams.get(stream.caller.client, [])
        if stream in known:
            known.remove(stream)
        if not known:
            self._streams.pop(stream.caller.client, None)

    def _all(self) -> list[ConnectedClient]:
        return [each for streams in list(self._streams.values()) for each in streams]

    async def telemetry(self, commands: AsyncIterator[Any], caller: Caller) -> AsyncIterator[Any]:
        """Serve one stream until its client ends it."""
        client = ConnectedClient(caller)
        self._streams.setdefault(caller.client, []).append(client)
        reading = asyncio.create_task(self._read(commands, client))
        try:
            while (command := await client.outbox.get()) is not None:
                yield command
        finally:
            self._forget(client)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await self.reconcile()

    async def reconcile(self) -> None:
        """Answer check-back for just the topics that a connected client sends half messages to."""
        await asyncio.shield(asyncio.ensure_future(self._reconcile()))  # a client that vanishes does not break it off

    async def _reconcile(self) -> None:
        async with self._serving:
            wanted = {topic for each in self._all() for topic in each.topics}
            for topic in self._served - wanted:
                self._served.discard(topic)
                await asyncio.to_thread(self._end, topic)
            for topic in wanted - self._served:
                await asyncio.to_thread(self._begin, topic)
                self._served.add(topic)

    async def _read(self, commands: AsyncIterator[Any], client: ConnectedClient) -> None:
        try:
            async for command in commands:
                if command.HasField("settings"):
                    await client.outbox.put(await self._settle(command.settings, client))
                else:
                    client.answered(command)
        finally:
            client.close()

    async def _settle(self, settings: Any, client: ConnectedClient) -> Any:
        try:
            if settings.HasField("publishing"):
                await self._publishing(settings, client)
            elif settings.HasField("subscription"):
                client.caller.require("group", [settings.subscription.group.name])
                await asyncio.to_thread(self._subscribing, settings)
        except Exception as refused:  # noqa: BLE001  # a client gets a status, whatever is wrong
            return wire.new("TelemetryCommand", status=of_error(refused))
        settings.metric.on, client.settings = False, settings
        return wire.new("TelemetryCommand", status=status(Code.OK), settings=settings)

    async def _publishing(self, settings: Any, client: ConnectedClient) -> None:
        if len(settings.publishing.topics) > TOPICS:
            raise CallRefused(Code.BAD_REQUEST, f"a client names at most {TOPICS} topics")
        named = {name_of(each) for each in settings.publishing.topics}
        client.caller.require("send", sorted(named))
        client.topics = await asyncio.to_thread(self._of_halves, named)
        await self.reconcile()
        settings.publishing.max_body_size, settings.publishing.validate_message_type = MAX_BODY, True
        backoff = {"initial": wire.in_parts(0.01), "max": wire.in_parts(1.0), "multiplier": 2.0}
        attempts = 1 if client.topics else ATTEMPTS
        settings.backoff_policy.CopyFrom(wire.new("RetryPolicy", max_attempts=attempts, exponential_backoff=backoff))

    def _of_halves(self, names: set[str]) -> frozenset[str]:
        found = set()
        for name in names:
            with suppress(errors.UnknownTopic):  # its sends are refused
                if self._kernel.store.registry.topic(name).type is TopicType.TRANSACTION:
                    found.add(name)
        return frozenset(found)

    def _subscribing(self, settings: Any) -> None:
        given = settings.subscription
        known = self._kernel.store.groups.find(name_of(given.group, "group"))
        policy = Policy() if known is None else known.policy
        given.fifo, given.receive_batch_size, given.long_polling_timeout.seconds = policy.ordered, BATCH, LONG_POLL
        pauses = [policy.retry_in(attempt, 1.0).total_seconds() for attempt in range(1, PAUSES + 1)]
        backoff = {"next": [*map(wire.in_parts, pauses)]}
        attempts = min(policy.max_attempts or 2**31 - 1, 2**31 - 1)
        settings.backoff_policy.CopyFrom(wire.new("RetryPolicy", max_attempts=attempts, customized_backoff=backoff))
