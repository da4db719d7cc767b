"""Producers that keep sending while their server dies, and a tally of what they were told.

Each body is sent once and never again by its producer, whatever the answer: what lies there twice was
doubled by the core. Only keyed transactions are tried again, because they may be.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import count

from sqlalchemy.exc import DBAPIError

from tests.chaos.scenarios import CREDITS
from tests.chaos.world import BANK, debit
from txsaga.broker import Broker
from txsaga.consume.consumer import Consumer
from txsaga.consume.stream import Stream
from txsaga.core.decision import Decision, LocalState
from txsaga.errors import AlreadyCommitted, InDoubt, TxSagaError
from txsaga.messages.producer import Producer

NEWS = "news"
TOLD_NO = (TxSagaError, DBAPIError)
PAUSE = 0.01


class Tally:
    """What producers were told, and what consumers got."""

    def __init__(self) -> None:
        self.acknowledged: list[str] = []
        self.seen: set[str] = set()
        self.worked: set[str] = set()
        self.decided: dict[int, int] = {}
        self.refused: dict[str, Exception] = {}
        self._news = threading.Condition()

    def acknowledge(self, body: str, txid: int | None = None, decision: Decision = Decision.COMMIT) -> None:
        """Note that a body is durable, and which decision was told."""
        with self._news:
            if decision is Decision.COMMIT:
                self.acknowledged.append(body)
            if txid is not None:
                self.decided[txid] = int(decision)
            self._news.notify_all()

    def wait_for_more(self, most: int = 100, patience: float = 60) -> None:
        """Wait until so many more are acknowledged."""
        with self._news:
            wanted = len(self.acknowledged) + most
            assert self._news.wait_for(lambda: len(self.acknowledged) >= wanted, patience), self.refused

    def wait_for_each(self, *kinds: str, more: int = 2, patience: float = 60) -> None:
        """Wait until so many more of each kind are acknowledged: what was under way before is over then."""
        with self._news:
            wanted = {kind: self._count(kind) + more for kind in kinds}
            done = self._news.wait_for(lambda: all(self._count(kind) >= n for kind, n in wanted.items()), patience)
            assert done, self.refused

    def _count(self, kind: str) -> int:
        return sum(body.startswith(kind) for body in self.acknowledged)


class Load:
    """Threads that work until they are stopped."""

    def __init__(self, broker: Broker) -> None:
        self.tally, self.stopped = Tally(), threading.Event()
        broker.create_topic(CREDITS, "transaction", queues=4)
        broker.create_topic(NEWS, queues=4)
        self._broker = broker

    @contextmanager
    def running(self, *workers: Callable[[Load], None]) -> Iterator[Tally]:
        """Run workers, each in its thread; none may hang."""
        threads = [threading.Thread(target=worker, args=(self,), name=worker.__name__) for worker in workers]
        for thread in threads:
            thread.start()
        try:
            yield self.tally
        finally:
            self.stopped.set()
            end = time.monotonic() + 60
            for thread in threads:
                thread.join(max(0.0, end - time.monotonic()))
        assert not [thread.name for thread in threads if thread.is_alive()]

    def bank(self) -> Producer:
        """Give the transactional producer; a half without evidence had no local work that committed."""
        return self._broker.producer("bank", checker=lambda _: LocalState.ROLLBACK)

    def stream(self) -> Stream:
        """Give the consumer of everything."""
        return self._broker.stream("readers", [CREDITS, NEWS], member="reader")

    def consumer(self) -> Consumer:
        """Give a member of the group that works plain messages off; nothing is ever given up."""
        self._broker.create_group("workers", max_attempts=None, longest_retry=timedelta(seconds=0.5))
        return self._broker.consumer("workers", [NEWS], invisible=timedelta(seconds=2))

    def shop(self) -> Producer:
        """Give the plain producer."""
        return self._broker.producer("shop")

    def bodies(self, who: str) -> Iterator[str]:
        """Give bodies until the end."""
        for n in count():
            if self.stopped.is_set():
                return
            yield f"{who} {n}"

    @contextmanager
    def told(self, body: str) -> Iterator[None]:
        """Note a refusal and go on, after a breath."""
        try:
            yield
        except TOLD_NO as refusal:
            self.tally.refused[body] = refusal
            self.stopped.wait(PAUSE)


def plain_sends(load: Load) -> None:
    """Send plain messages."""
    producer = load.shop()
    for body in load.bodies("plain"):
        with load.told(body):
            receipt = producer.send(NEWS, body.encode())
            load.tally.acknowledge(body, receipt.txid)


def transfers(load: Load) -> None:
    """Send with local work in another database."""
    producer = load.bank()
    for body in load.bodies("transfer"):
        with load.told(body):
            with producer.transaction() as tx:
                tx.send(CREDITS, body.encode())
                with tx.local(BANK) as connection:
                    debit(connection, body)
            load.tally.acknowledge(body, tx.txid)


def keyed_transfers(load: Load) -> None:
    """Send under a key with local work, again and again until it is done."""
    producer = load.bank()
    for body in load.bodies("keyed"):
        while True:
            try:
                with producer.transaction(key=body) as tx:
                    tx.send(CREDITS, body.encode())
                    with tx.local(BANK) as connection:
                        debit(connection, body)
            except AlreadyCommitted as done:
                load.tally.acknowledge(body, done.txid)
            except InDoubt:
                load.stopped.wait(PAUSE)
                continue
            except TOLD_NO:
                if not load.stopped.wait(PAUSE):
                    continue
            else:
                load.tally.acknowledge(body, tx.txid)
            break


def awaited_halves(load: Load) -> None:
    """Prepare and decide in asyncio, many at once; every third is rolled back."""
    producer = load.bank()

    async def send(who: str) -> None:
        for n, body in enumerate(load.bodies(who)):
            decision = Decision.COMMIT if n % 3 else Decision.ROLLBACK
            try:
                receipt = await producer.prepare(CREDITS, body.encode())
                standing = await producer.decide(receipt, decision)
                load.tally.acknowledge(body, receipt.txid, standing.decision)
            except TOLD_NO as refusal:
                load.tally.refused[body] = refusal
                await asyncio.sleep(PAUSE)

    async def together() -> None:
        await asyncio.gather(*(send(f"half {task}") for task in range(8)))

    asyncio.run(together())


def reads(load: Load) -> None:
    """Read everything; a reader finds back by itself."""
    stream = load.stream()
    while not load.stopped.is_set():
        load.tally.seen.update(message.text() for message in stream.messages(wait=0.1))


def works_off(load: Load) -> None:
    """Work plain messages off, some of them at the second try; a worker finds back by itself."""
    with load.consumer() as consumer:
        while not load.stopped.is_set():
            with suppress(TxSagaError):  # an acknowledgement that was lost or late: the message comes again
                for message in consumer.messages(wait=0.1):
                    with message:
                        if message.attempts == 1 and message.text().endswith("7"):
                            raise ValueError("at the second try")
                        load.tally.worked.add(message.text())
                    if load.stopped.is_set():
                        break


PRODUCERS = (plain_sends, transfers, keyed_transfers, awaited_halves)
