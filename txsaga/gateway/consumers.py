"""
Consumers that calls share: opened by the first call that needs one, closed when none has asked for a while.

What a call takes is a claim; the receipt that names it is all that a later call needs, at any instance.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import NamedTuple, TypeVar

from txsaga import errors
from txsaga.consume.burial import bury
from txsaga.consume.claim import Burial, Claim, Policy
from txsaga.consume.consumer import Consumer
from txsaga.consume.delivery import Delivery
from txsaga.consume.fetching import Fetching
from txsaga.core import facts
from txsaga.core.kernel import Kernel
from txsaga.core.message import Delivered
from txsaga.gateway.arrivals import LOOK, Arrivals

THREADS = 32
IDLE = 60.0
"""Seconds after which a consumer that nobody asks is closed."""
SHORTEST, LONGEST = timedelta(milliseconds=100), timedelta(hours=12)
"""For how long a message may be invisible."""

T = TypeVar("T")
Wanted = Callable[[Delivered], bool]


class ConsumerKey(NamedTuple):
    """What a consumer is for."""

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


class ConsumerPool:
    """The consumers of this process."""

    def __init__(self, kernel: Kernel, arrivals: Arrivals) -> None:
        self._kernel, self._arrivals = kernel, arrivals
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="txsaga-receive")
        self._consumers: dict[ConsumerKey, OpenConsumer] = {}
        self._lines: dict[tuple[str, str], asyncio.Lock] = {}

    async def take(
        self, key: ConsumerKey, filter: Callable[[], Wanted | None], most: int, patience: float
    ) -> Sequence[Delivery]:
        """Take messages, waiting for the first as long as the client does."""
        opened = await self._opened(key, filter)
        until = time.monotonic() + patience
        found = await self._taken(opened, most)
        if found or patience <= 0:
            return found
        # Of all calls that wait for a group, one looks at a time: idle clients cost nothing.
        line = self._lines.setdefault((key.group, key.topic), asyncio.Lock())
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

    async def extend(self, claim: Claim, by: timedelta) -> Claim:
        """Let a message come again after this long from now; return its new claim."""
        return await self._in_thread(lambda: self._extended(claim, by))

    async def bury(self, claim: Claim, topic: str, cause: str) -> None:
        """Move a message to the dead letters of its group, or to its backout topic."""
        await self._in_thread(lambda: self._bury(claim, topic, cause))

    async def close_idle(self) -> None:
        """Close the consumers that nobody has asked for a while."""
        gone = [key for key, each in self._consumers.items() if time.monotonic() - each.used > IDLE]
        for key in gone:
            with suppress(errors.TxSagaError):
                self._consumers.pop(key).consumer.close()
        for place in [place for place, line in self._lines.items() if not line.locked()]:
            del self._lines[place]

    def close(self) -> None:
        """Close every consumer."""
        for each in self._consumers.values():
            with suppress(errors.TxSagaError):
                each.consumer.close()
        self._threads.shutdown()

    async def _opened(self, key: ConsumerKey, filter: Callable[[], Wanted | None]) -> OpenConsumer:
        known = self._consumers.get(key)
        if known is None:
            opened = OpenConsumer(await self._in_thread(partial(self._open, key, filter())))
            known = self._consumers.setdefault(key, opened)
        known.used = time.monotonic()
        return known

    def _open(self, key: ConsumerKey, wanted: Wanted | None) -> Consumer:
        kernel, invisible = self._kernel, key.invisible
        return Consumer(kernel, key.group, [key.topic], member=key.client, invisible=invisible, wanted=wanted)

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
            return await self._in_thread(lambda: opened.consumer.receive(most))

    def _unread(self, taken: asyncio.Future[Sequence[Delivery]]) -> None:
        """Put back what a client did not wait for."""
        if not taken.cancelled() and taken.exception() is None:
            for each in taken.result():
                with suppress(RuntimeError):  # the process stops: it comes again once its claim runs out
                    self._threads.submit(each.give_back)

    def _extended(self, claim: Claim, by: timedelta) -> Claim:
        with self._kernel.announce.around(facts.Extending, about=claim.group):
            return self._kernel.store.claims.extend_alone(claim, by)

    def _bury(self, claim: Claim, topic: str, cause: str) -> None:
        queues = self._kernel.topics.by_queue([topic])
        if claim.qid in queues and claim.copy is not None:  # a replayed one: the store has its copy
            with self._kernel.announce.around(facts.Burying, about=claim.group):
                self._kernel.store.claims.bury(claim, Burial(claim.copy, topic, cause, None))
            return
        found = Fetching(self._kernel, queues).of(claim).messages if claim.qid in queues else []
        if not found:
            raise errors.ClaimLost(f"topic {topic!r} has no such message any more")
        known = self._kernel.store.groups.find(claim.group)
        bury(self._kernel, Policy() if known is None else known.policy, claim, found[0], cause)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
