"""
Two writers of the same tables, an engine and a reader, each a process that is killed again and again.

Each entry is a row in two tables, a message, and for every other one a row of the bank. The reader looks at one moment
of all of them: what it sees of one and not of the other it writes down as torn.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import txsaga
from tests.chaos.lake_programs import LEDGER, POSTING, clerk, entry
from tests.chaos.scenarios import CREDITS
from tests.chaos.transfers import QUICK, Part
from tests.chaos.world import BANK, World, database, debit
from txsaga.broker import Broker
from txsaga.core.role_loop import Loop
from txsaga.errors import TxSagaError
from txsaga.messages.producer import Producer

DEBITED = 2
"""Of so many entries one is a row of the bank too."""


def write(world: World, seed: int) -> None:
    """Write entries of numbers that nobody else has."""
    numbers = random.SystemRandom()
    with opened(world) as broker:
        producer = clerk(broker)
        while True:
            with suppress(TxSagaError):  # whatever it says, the evidence or the decision will tell
                book(producer, world, numbers.getrandbits(48))


def book(producer: Producer, world: World, id: int) -> None:
    """Write one entry."""
    with producer.transaction(key=str(id)) as tx:
        for name in (LEDGER, POSTING):
            tx.table(name).append(entry(id))
        tx.send(CREDITS, str(id).encode(), key=str(id))
        if id % DEBITED:
            with tx.local(BANK) as connection:
                debit(connection, str(id))
    world.note("acknowledged", str(id))


def settle(world: World, seed: int) -> None:
    """Run the roles."""
    with opened(world) as broker:
        clerk(broker)
        loop = Loop(broker.roles(QUICK))
        loop.start()
        signal.pause()


def look(world: World, seed: int) -> None:
    """Compare both tables and the topic, at one moment after the other."""
    with opened(world) as broker:
        while True:
            with suppress(TxSagaError), broker.cut(tables=[LEDGER, POSTING], topics=[CREDITS]) as cut:
                seen = [cut.scan(name).to_arrow().num_rows for name in (LEDGER, POSTING)]
                told = sum(cut.heads[CREDITS])
                world.note("looks", str(told))
                if {*seen, told} != {told}:
                    world.note("torn", f"{seen} rows and {told} messages")


PARTS: dict[str, Part] = {"a writer": write, "another one": write, "engine": settle, "reader": look}


@contextmanager
def opened(world: World) -> Iterator[Broker]:
    """Open the store, its tables and the bank."""
    place = world.folder / "warehouse"
    with (
        database(world.bank) as bank,
        txsaga.connect(
            world.home, resources={BANK: bank}, warehouse=place, roles=False, answering=False, env={}
        ) as broker,
    ):
        yield broker
