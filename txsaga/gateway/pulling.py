"""
What pull consumers call: messages by their offset, and the offsets of queues and groups.

The client keeps its place: each pull says where it begins. `UpdateOffset` stores a place for a stream group.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from txsaga import errors
from txsaga.consume.claim import MOST, Style
from txsaga.consume.fetching import Fetching
from txsaga.consume.membership import joined
from txsaga.core import facts
from txsaga.core.kernel import Kernel
from txsaga.core.message import Delivered
from txsaga.core.topic import Topic
from txsaga.gateway import wire
from txsaga.gateway.access import Caller
from txsaga.gateway.arrivals import LONGEST_WAIT, LOOK, Arrivals
from txsaga.gateway.consumers import Wanted
from txsaga.gateway.filters import filter_of
from txsaga.gateway.messages import name_of, pulled
from txsaga.gateway.status import CallRefused, Code, status

END, TIMESTAMP = (wire.number("QueryOffsetPolicy", name) for name in ("END", "TIMESTAMP"))


class PullingCalls:
    """Serves pull consumers, and those who measure how far a group has come."""

    def __init__(self, kernel: Kernel, arrivals: Arrivals) -> None:
        self._kernel, self._arrivals = kernel, arrivals

    async def pull_message(self, request: Any, _: Caller) -> AsyncIterator[Any]:
        """Yield a status, the messages from an offset on, and the offset after them."""
        name_of(request.group, "group")
        wanted, offset = filter_of(request.filter_expression), request.offset
        topic, qid = await self._queue(request.message_queue)
        reading = Fetching(self._kernel, {qid: (topic, request.message_queue.id)})
        until = time.monotonic() + min(wire.span(request.long_polling_timeout).total_seconds(), LONGEST_WAIT)
        most = min(max(request.batch_size, 1), MOST)
        while True:
            found, end, all_read = await asyncio.to_thread(self._read, reading, qid, offset, most, wanted)
            if found or (left := until - time.monotonic()) <= 0:
                break
            offset = end
            if all_read:
                await self._arrivals.wait(min(left, LOOK))
        yield wire.new("PullMessageResponse", status=status(Code.OK if found else Code.MESSAGE_NOT_FOUND))
        for each in found:
            yield wire.new("PullMessageResponse", message=pulled(each))
        yield wire.new("PullMessageResponse", next_offset=end)

    async def message(self, topic: str, queue: int, offset: int) -> Delivered:
        """Return one committed message."""
        known, qid = await self._queue(wire.new("MessageQueue", topic={"name": topic}, id=queue))
        reading = Fetching(self._kernel, {qid: (known, queue)})
        found, _, _ = await asyncio.to_thread(self._read, reading, qid, offset, 1, None)
        if not found:
            raise CallRefused(Code.MESSAGE_NOT_FOUND, f"queue {queue} of topic {topic!r} ends before offset {offset}")
        return found[0]

    async def query_offset(self, request: Any) -> Any:
        """Return the first offset of a queue, the one after its last message, or that of a point in time."""
        _, qid = await self._queue(request.message_queue)
        if request.query_offset_policy == TIMESTAMP:
            try:
                at = wire.moment(request.timestamp)
            except ValueError as odd:
                raise CallRefused(Code.BAD_REQUEST, f"the timestamp can't be read: {odd}") from None
            found = await asyncio.to_thread(self._kernel.store.log.offset_at, qid, at)
        else:
            bounds = (await asyncio.to_thread(self._kernel.store.log.bounds, [qid]))[qid]
            found = bounds.head if request.query_offset_policy == END else bounds.tail
        return wire.new("QueryOffsetResponse", status=status(Code.OK), offset=found)

    async def get_offset(self, request: Any) -> Any:
        """Return the offset before which a group has processed all; what it received at once counts as a whole."""
        group = name_of(request.group, "group")
        topic, _ = await self._queue(request.message_queue)
        found = await asyncio.to_thread(self._position, group, topic.name, request.message_queue.id)
        return wire.new("GetOffsetResponse", status=status(Code.OK), offset=found)

    async def update_offset(self, request: Any) -> Any:
        """Store where a stream group is to continue; a group that is not there is created."""
        group = name_of(request.group, "group")
        topic, qid = await self._queue(request.message_queue)
        await asyncio.to_thread(self._move, group, topic, qid, request.offset)
        return wire.new("UpdateOffsetResponse", status=status(Code.OK))

    async def _queue(self, asked: Any) -> tuple[Topic, int]:
        topic = await asyncio.to_thread(self._kernel.store.registry.topic, name_of(asked.topic))
        if not 0 <= asked.id < len(topic.qids):
            why = f"topic {topic.name!r} has no queue {asked.id}; give one of 0 to {len(topic.qids) - 1}"
            raise CallRefused(Code.BAD_REQUEST, why)
        return topic, topic.qids[asked.id]

    def _read(
        self, reading: Fetching, qid: int, offset: int, most: int, wanted: Wanted | None
    ) -> tuple[Sequence[Delivered], int, bool]:
        """Return the wanted messages from an offset on, the offset after them, and whether the queue ends there."""
        head = self._inside(qid, offset)
        end = min(offset + most, head)
        messages, damaged = reading.read(qid, offset, end)
        if damaged:
            end = damaged[0].offset
            if end == offset:
                raise CallRefused(Code.MESSAGE_CORRUPTED, f"{damaged[0].cause}; go on with offset {offset + 1}")
        found = [each for each in messages if each.offset < end and (wanted is None or wanted(each))]
        return found, end, end == head

    def _inside(self, qid: int, offset: int) -> int:
        bounds = self._kernel.store.log.bounds([qid])[qid]
        if not bounds.tail <= offset <= bounds.head:
            why = f"offset {offset} is not in the queue; give one from {bounds.tail} to {bounds.head}"
            raise CallRefused(Code.ILLEGAL_OFFSET, why)
        return bounds.head

    def _position(self, group: str, topic: str, queue: int) -> int:
        if self._kernel.store.groups.find(group) is None:
            raise errors.UnknownGroup(group)
        for reading in self._kernel.store.overview.readings():
            for each in reading.positions:
                if (reading.group, reading.topic, each.queue) == (group, topic, queue):
                    return each.lowest
        raise CallRefused(Code.OFFSET_NOT_FOUND, f"group {group!r} has not read queue {queue} of topic {topic!r}")

    def _move(self, group: str, topic: Topic, qid: int, offset: int) -> None:
        self._inside(qid, offset)
        joined(self._kernel, group, Style.STREAM, [topic.name], "earliest")
        with self._kernel.announce.around(facts.Positioning, about=group):
            self._kernel.store.queues.reset(group, {qid: offset})
