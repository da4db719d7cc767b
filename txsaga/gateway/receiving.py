"""
What consumers call: receive, acknowledge, hold for longer, give up on a message.

A message is claimed for its client as for any consumer of txsaga. The receipt handle is the claim, so a later call may
reach another instance. What a push consumer has received is held for it as long as it is connected here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

from txsaga.broker import Broker
from txsaga.gateway import wire
from txsaga.gateway.access import Caller
from txsaga.gateway.arrivals import LONGEST_WAIT
from txsaga.gateway.clients import BATCH
from txsaga.gateway.consumers import LONGEST, SHORTEST, ConsumerKey, ConsumerPool
from txsaga.gateway.filters import filter_of
from txsaga.gateway.handles import claim_of, receipt_handle
from txsaga.gateway.messages import delivered, name_of
from txsaga.gateway.renewing import Renewals
from txsaga.gateway.status import CallRefused, Code, of_all, of_error, status

RENEWED = timedelta(seconds=30)
"""For how long a push consumer's messages are held at a time."""


class ReceivingCalls:
    """Serves consumers."""

    def __init__(self, broker: Broker, consumers: ConsumerPool, renewals: Renewals) -> None:
        self._kernel, self._consumers, self._renewals = broker.kernel, consumers, renewals

    async def receive_message(self, request: Any, caller: Caller) -> AsyncIterator[Any]:
        """Yield a status, and the messages that came within the time the client waits."""
        given = wire.span(request.invisible_duration) if request.HasField("invisible_duration") else RENEWED
        invisible = RENEWED if request.auto_renew else _invisible(given, SHORTEST)
        group, topic = name_of(request.group, "group"), name_of(request.message_queue.topic)
        filter = request.filter_expression
        key = ConsumerKey(group, topic, caller.client, invisible, f"{filter.type} {filter.expression}")
        most, patience = min(max(request.batch_size, 1), BATCH), wire.span(request.long_polling_timeout).total_seconds()
        found = await self._consumers.take(key, lambda: filter_of(filter), most, min(patience, LONGEST_WAIT))
        if request.auto_renew:
            self._renewals.add(caller.client, [each.claim for each in found])
        code = Code.OK if found else Code.MESSAGE_NOT_FOUND
        yield wire.new("ReceiveMessageResponse", status=status(code))
        for each in found:
            yield wire.new("ReceiveMessageResponse", message=delivered(each, invisible.total_seconds()))
        yield wire.new("ReceiveMessageResponse", delivery_timestamp=wire.in_parts(time.time()))

    async def ack_message(self, request: Any) -> Any:
        """Acknowledge messages, each by itself."""
        if not request.entries:
            raise CallRefused(Code.BAD_REQUEST, "there is no entry")
        group = name_of(request.group, "group")
        entries = await asyncio.gather(*(self._acked(group, each) for each in request.entries))
        return wire.new("AckMessageResponse", status=of_all(entries), entries=entries)

    async def change_invisible_duration(self, request: Any) -> Any:
        """Let a message come again after this long from now; the answer has its new handle."""
        claim = claim_of(name_of(request.group, "group"), request.receipt_handle)
        by = _invisible(wire.span(request.invisible_duration), timedelta())
        handle = receipt_handle(await self._consumers.extend(claim, by))
        return wire.new("ChangeInvisibleDurationResponse", status=status(Code.OK), receipt_handle=handle)

    async def forward_message_to_dead_letter_queue(self, request: Any) -> Any:
        """Move a message to the dead letters of its group, or to its backout topic."""
        claim = claim_of(name_of(request.group, "group"), request.receipt_handle)
        cause = f"its consumer gave it up after {request.delivery_attempt} deliveries"
        await self._consumers.bury(claim, name_of(request.topic), cause)
        return wire.new("ForwardMessageToDeadLetterQueueResponse", status=status(Code.OK))

    async def _acked(self, group: str, entry: Any) -> Any:
        said = {"message_id": entry.message_id, "receipt_handle": entry.receipt_handle}
        try:
            claim = claim_of(group, entry.receipt_handle)
            await (await self._kernel.in_loop(lambda: self._kernel.acks.submit(claim)))
        except Exception as refused:  # noqa: BLE001  # the others are acknowledged
            return wire.new("AckMessageResultEntry", status=of_error(refused), **said)
        return wire.new("AckMessageResultEntry", status=status(Code.OK), **said)


def _invisible(given: timedelta, least: timedelta) -> timedelta:
    if not least <= given <= LONGEST:
        which = "small" if given < least else "large"  # RocketMQ's words, which programs look for
        why = f"the invisibleTime is too {which}: it is {given}; give {least} to {LONGEST}"
        raise CallRefused(Code.ILLEGAL_INVISIBLE_TIME, why)
    return given
