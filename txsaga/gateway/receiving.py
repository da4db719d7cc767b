"""
What consumers call: receive, acknowledge, hold for longer, give up on a message.

A message is claimed for its client as for any consumer of txsaga. The receipt handle is the claim, so a later call may
reach another instance. What a push consumer has received is held for it as long as it is connected here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from txsaga import errors
from txsaga.broker import Broker
from txsaga.consume.burial import bury
from txsaga.consume.claim import MOST, Burial, Claim, Policy
from txsaga.consume.consumer import Consumer
from txsaga.consume.delivery import Delivery
from txsaga.consume.fetching import Fetching
from txsaga.core import facts
from txsaga.gateway import wire
from txsaga.gateway.access import Caller
from txsaga.gateway.arrivals import LONGEST_WAIT, LOOK, Arrivals
from txsaga.gateway.filters import filter_of
from txsaga.gateway.handles import claim_of, receipt_handle
from txsaga.gateway.messages import delivered, name_of
from txsaga.gateway.renewing import Renewals
from txsaga.gateway.status import CallRefused, Code, of_all, of_error, status

RENEWED = timedelta(seconds=30)
"""For how long a push consumer's messages are held at a time."""
SHORTEST, LONGEST = timedelta(milliseconds=100), timedelta(hours=12)
THREADS = 32
IDLE = 60.0
"""Seconds after which a consumer that nobody asks is closed."""


class ConsumerKey(NamedTuple):
    """What a consumer of the gateway is for."""

    group: str
    topic: str
    client: str
    invisible: timedelta
    filter: str


@dataclass(slots=True)
class OpenConsumer:
    """A consumer; one call at a time takes messages by it."""

    consumer: Consumer
    taking: asyncio.Lock = field(default_factory=asyncio.Lock)
    used: float = 0.0


class ReceivingCalls:
    """Serves consumers."""

    def __init__(self, broker: Broker, arrivals: Arrivals, renewals: Renewals) -> None:
        self._kernel, self._arrivals, self._renewals = broker.kernel, arrivals, renewals
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="txsaga-receive")
        self._consumers: dict[ConsumerKey, OpenConsumer] = {}
        self._lines: dict[tuple[str, str], asyncio.Lock] = {}

    async def receive_message(self, request: Any, caller: Caller) -> AsyncIterator[Any]:
        """Yield a status, and the messages that came within the time the client waits."""
        consumer, invisible = await self._consumer(request, caller.client)
        found = await self._waited(consumer, request)
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
        handle = receipt_handle(await self._in_thread(self._extended, claim, by))
        return wire.new("ChangeInvisibleDurationResponse", status=status(Code.OK), receipt_handle=handle)

    async def forward_message_to_dead_letter_queue(self, request: Any) -> Any:
        """Move a message to the dead letters of its group, or to its backout topic."""
        claim = claim_of(name_of(request.group, "group"), request.receipt_handle)
        await self._in_thread(self._bury, claim, name_of(request.topic), request.delivery_attempt)
        return wire.new("ForwardMessageToDeadLetterQueueResponse", status=status(Code.OK))

    async def close_idle(self) -> None:
        """Close the consumers that nobody has asked for a while."""
        gone = [key for key, each in self._consumers.items() if time.monotonic() - each.used > IDLE]
        for key in gone:
            with suppress(errors.TxSagaError):
                self._consumers.pop(key).consumer.close()
        for place in [place for place, line in self._lines.items() if not line.locked()]:
            del self._lines[place]

    async def _consumer(self, request: Any, client: str) -> tuple[OpenConsumer, timedelta]:
        given = wire.span(request.invisible_duration) if request.HasField("invisible_duration") else RENEWED
        invisible = RENEWED if request.auto_renew else _invisible(given, SHORTEST)
        group, topic = name_of(request.group, "group"), name_of(request.message_queue.topic)
        filter = request.filter_expression
        key = ConsumerKey(group, topic, client, invisible, f"{filter.type} {filter.expression}")
        known = self._consumers.get(key)
        if known is None:
            opened = OpenConsumer(await self._in_thread(self._opened, key, filter_of(filter)))
            known = self._consumers.setdefault(key, opened)
        known.used = time.monotonic()
        return known, invisible

    def _opened(self, key: ConsumerKey, wanted: Any) -> Consumer:
        options = {"member": key.client, "invisible": key.invisible, "wanted": wanted}
        return Consumer(self._kernel, key.group, [key.topic], **options)

    async def _waited(self, opened: OpenConsumer, request: Any) -> Sequence[Delivery]:
        """Take messages, waiting for the first as long as the client does."""
        most, patience = min(max(request.batch_size, 1), MOST), wire.span(request.long_polling_timeout).total_seconds()
        until = time.monotonic() + min(patience, LONGEST_WAIT)
        found = await self._taken(opened, most)
        if found or patience <= 0:
            return found
        # Of all calls that wait for a group, one looks at a time: idle clients cost nothing.
        line = self._lines.setdefault((opened.consumer.group, request.message_queue.topic.name), asyncio.Lock())
        try:
            async with asyncio.timeout(until - time.monotonic()):
                await line.acquire()
        except TimeoutError:
            return []
        try:
            while not (found := await self._taken(opened, most)) and (left := until - time.monotonic()) > 0:
                await self._arrivals.wait(min(left, LOOK))
            return found
        finally:
            line.release()

    async def _taken(self, opened: OpenConsumer, most: int) -> Sequence[Delivery]:
        opened.used = time.monotonic()
        taking = asyncio.ensure_future(self._taken_alone(opened, most))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(self._unread)
            raise

    async def _taken_alone(self, opened: OpenConsumer, most: int) -> Sequence[Delivery]:
        async with opened.taking:
            found: Sequence[Delivery] = await self._in_thread(opened.consumer.receive, most)
            return found

    def _unread(self, taken: asyncio.Future[Sequence[Delivery]]) -> None:
        """Put back what a client did not wait for."""
        if not taken.cancelled() and taken.exception() is None:
            for each in taken.result():
                with suppress(RuntimeError):  # the gateway stops: it comes again once its claim runs out
                    self._threads.submit(each.give_back)

    async def _acked(self, group: str, entry: Any) -> Any:
        said = {"message_id": entry.message_id, "receipt_handle": entry.receipt_handle}
        try:
            claim = claim_of(group, entry.receipt_handle)
            await (await self._kernel.in_loop(lambda: self._kernel.acks.submit(claim)))
        except Exception as refused:  # noqa: BLE001  # the others are acknowledged
            return wire.new("AckMessageResultEntry", status=of_error(refused), **said)
        return wire.new("AckMessageResultEntry", status=status(Code.OK), **said)

    def _extended(self, claim: Claim, by: timedelta) -> Claim:
        with self._kernel.announce.around(facts.Extending, about=claim.group):
            return self._kernel.store.claims.extend_alone(claim, by)

    def _bury(self, claim: Claim, topic: str, attempts: int) -> None:
        cause = f"its consumer gave it up after {attempts} deliveries"
        if claim.copy is not None:  # a replayed one: the store has its copy
            with self._kernel.announce.around(facts.Burying, about=claim.group):
                self._kernel.store.claims.bury(claim, Burial(claim.copy, topic, cause, None))
            return
        queues = self._kernel.topics.by_queue([topic])
        found = Fetching(self._kernel, queues).of(claim).messages if claim.qid in queues else []
        if not found:
            raise CallRefused(Code.INVALID_RECEIPT_HANDLE, f"topic {topic!r} has no such message any more")
        known = self._kernel.store.groups.find(claim.group)
        bury(self._kernel, Policy() if known is None else known.policy, claim, found[0], cause)

    async def _in_thread(self, work: Any, *args: object) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *args)

    def close(self) -> None:
        """Close every consumer."""
        for each in self._consumers.values():
            with suppress(errors.TxSagaError):
                each.consumer.close()
        self._threads.shutdown()


def _invisible(given: timedelta, least: timedelta) -> timedelta:
    if not least <= given <= LONGEST:
        raise CallRefused(Code.ILLEGAL_INVISIBLE_TIME, f"the invisible duration is {given}; give up to {LONGEST}")
    return given
