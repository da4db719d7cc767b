"""
Transfers between two databases while everybody is killed again and again, as users would run them.

A producer debits accounts in the bank and sends what is to be credited; a checker answers for producers that died;
an engine runs the roles; a consumer credits accounts in another database. Each is a process of its own. Times that
are long in production are short here, so that a lease that a dead process holds is over soon.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pkgutil import resolve_name

from sqlalchemy import text

import txsaga
from tests.chaos.scenarios import CREDITS, booked, nobody_knows
from tests.chaos.world import BANK, World, database, debit
from txsaga import COMMIT, LocalState, Message, inbox
from txsaga.broker import Broker
from txsaga.checkback.profile import CheckProfile
from txsaga.core.message import TRANSACTION_ID
from txsaga.core.role_loop import Loop
from txsaga.errors import TxSagaError
from txsaga.messages.producer import Producer
from txsaga.rocketmq import TransactionMQProducer

CREDIT = "CREATE TABLE credit (id text NOT NULL)"
SOON = timedelta(seconds=0.3)
QUICK = CheckProfile(interval=SOON, min_age=SOON, reply_timeout=timedelta(seconds=1), max_checks=1_000)
SHORT = {
    "txsaga.checkback.heartbeat.MEMBERSHIP": timedelta(seconds=1),
    "txsaga.checkback.heartbeat.Lease.TTL": timedelta(seconds=1),
    "txsaga.checkback.heartbeat.LEASE": timedelta(seconds=2),
    "txsaga.checkback.doubts_store.LEASE": timedelta(seconds=2),
}
Part = Callable[[World, int], None]
_warm = multiprocessing.get_context("forkserver")
_warm.set_forkserver_preload(["tests.chaos.transfers"])


def produce(world: World, seed: int) -> None:
    """Transfer whatever nobody has tried yet, in a way that the seed draws for each."""
    with opened(world) as broker:
        known = broker.producer("bank", checker=nobody_knows)
        asked = TransactionMQProducer(broker, "teller", checker=booked(world), end_timeout=5)
        for id in world.notes("wanted")[len(world.notes("tried")) :]:
            world.note("tried", id)
            way = random.Random(f"{seed} {id}").choice((in_a_block, in_a_keyed_block, None))
            with suppress(TxSagaError):  # whatever it says, the evidence or the checker will tell
                by_request(asked, world, id) if way is None else way(known, world, id)


def in_a_block(producer: Producer, world: World, id: str) -> None:
    """Transfer without a key."""
    with producer.transaction() as tx:
        tx.send(CREDITS, id.encode(), key=id)
        with tx.local(BANK) as connection:
            debit(connection, id)


def in_a_keyed_block(producer: Producer, world: World, id: str) -> None:
    """Transfer under a key, the credit known in the local transaction only."""
    with producer.transaction(key=id) as tx:
        slot = tx.later(CREDITS, key=id)
        with tx.local(BANK) as connection:
            debit(connection, id)
            slot.fill(connection, id.encode())


def by_request(producer: TransactionMQProducer, world: World, id: str) -> None:
    """Transfer the way of half messages, the books kept by hand."""

    def work(message: Message, _: object) -> LocalState:
        assert message.headers is not None
        with database(world.bank) as engine, engine.begin() as connection:
            debit(connection, id, message.headers[TRANSACTION_ID])
        return COMMIT

    producer.send_message_in_transaction(Message(CREDITS, id.encode(), key=id), executor=work)


def check(world: World, seed: int) -> None:
    """Answer for tellers that died."""
    with opened(world, answering=True) as broker:
        broker.producer("teller", checker=booked(world))
        signal.pause()


def run_engine(world: World, seed: int) -> None:
    """Run the roles."""
    with opened(world) as broker:
        loop = Loop(broker.roles(QUICK))
        loop.start()
        signal.pause()


def consume(world: World, seed: int) -> None:
    """Credit what comes, each once however often it comes."""
    with opened(world) as broker, database(world.bank) as savings:
        consumer = broker.consumer("savings", [CREDITS], batch=4, invisible=timedelta(seconds=1))
        while True:
            with suppress(TxSagaError):
                for message in consumer.messages(wait=0.1):
                    with message, savings.begin() as connection, inbox(connection, message):
                        connection.execute(text("INSERT INTO credit VALUES (:id)"), {"id": message.text()})


PARTS: dict[str, Part] = {"producer": produce, "checker": check, "engine": run_engine, "consumer": consume}


class Town:
    """The processes of one run; who is drawn dies and comes back."""

    def __init__(self, world: World, seed: int, parts: Mapping[str, Part] = PARTS) -> None:
        self._world, self._seed, self._random = world, seed, random.Random(seed)
        self._parts = parts
        self._running: dict[str, BaseProcess] = {}
        self.kills: list[str] = []

    def start(self) -> None:
        """Start everybody."""
        for name in self._parts:
            self._start(name)

    def kill_somebody(self, seldom: float = 0.5) -> None:
        """Wait for a moment that the seed draws, and kill one, the first one more often; who comes back at once."""
        time.sleep(self._random.uniform(0.02, seldom))
        first, *others = self._parts
        name = self._random.choices([first, *others], weights=[3, *(1 for _ in others)])[0]
        self._kill(name)
        self.kills.append(name)
        self._start(name)

    @property
    def working(self) -> bool:
        """Tell whether the producer has more to do; one that failed by itself is started again."""
        producer = self._running["producer"]
        if producer.exitcode is not None and self._left:
            self._start("producer")
        return bool(self._left) or producer.exitcode is None

    def run(self, finish: Callable[[], None]) -> None:
        """Kill somebody again and again until the work is done, and let the rest of it finish."""
        self.start()
        try:
            while self.working:
                self.kill_somebody()
            finish()
        finally:
            self.stop()

    def __str__(self) -> str:
        killed = ", ".join(f"{name} {count}" for name, count in sorted(Counter(self.kills).items()))
        wanted = len(self._world.notes("wanted"))
        return f"{wanted} transfers, TXSAGA_TRANSFER_SEED={self._seed}, {len(self.kills)} kills: {killed}"

    def stop(self) -> None:
        """Kill everybody."""
        for name in list(self._running):
            self._kill(name)

    @property
    def _left(self) -> int:
        return len(self._world.notes("wanted")) - len(self._world.notes("tried"))

    def _start(self, name: str) -> None:
        process = _warm.Process(target=_main, args=(self._parts[name], self._world, self._seed), daemon=True)
        process.start()
        self._running[name] = process

    def _kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.join()


@contextmanager
def opened(world: World, *, answering: bool = False) -> Iterator[Broker]:
    """Open the store and the bank."""
    with (
        database(world.bank) as bank,
        txsaga.connect(world.home, resources={BANK: bank}, roles=False, answering=answering, env={}) as broker,
    ):
        yield broker


def _main(part: Part, world: World, seed: int) -> None:
    for place, value in SHORT.items():
        _set(place, value)
    os.environ.pop("TXSAGA_KILL", None)
    part(world, seed)


def _set(place: str, value: timedelta) -> None:
    owner, _, name = place.rpartition(".")
    setattr(resolve_name(owner), name, value)
