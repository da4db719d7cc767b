"""Programs of asyncio's to kill: what `scenarios` and `coordinated` do, in blocks of an event loop."""

from __future__ import annotations

import asyncio

from sqlalchemy.ext.asyncio import create_async_engine

import txsaga
from tests.chaos.coordinated import BOTH, TILL_TOLD, book, fresh_ids, recover, teller
from tests.chaos.scenarios import CREDITS, nobody_knows, settle
from tests.chaos.world import BANK, World, debit
from txsaga.broker import Broker


def transfer_in_loop(_: Broker, world: World) -> None:
    """Move money twice, the second time under a key and with a body that is known late."""
    engine = create_async_engine(world.bank)
    with txsaga.connect(world.home, resources={BANK: engine}, roles=False, answering=False) as broker:
        asyncio.run(_transfer(broker, world))
        asyncio.run(engine.dispose())
        settle(broker, world)


async def _transfer(broker: Broker, world: World) -> None:
    broker.create_topic(CREDITS, "transaction", queues=2)
    producer = broker.producer("bank", checker=nobody_knows)
    async with producer.transaction() as tx:
        await tx.send(CREDITS, b"1", key="1")
        async with tx.local(BANK) as connection:
            await connection.run_sync(debit, "1")
    world.note("acknowledged", "1")
    async with producer.transaction(key="order-2") as tx:
        slot = await tx.later(CREDITS, key="2")
        async with tx.local(BANK) as connection:
            await connection.run_sync(debit, "2")
            await slot.fill(connection, b"2")
    world.note("acknowledged", "2")


@TILL_TOLD
def pay_in_loop(broker: Broker, world: World) -> None:
    """Move money between two databases in coordinated transactions."""
    engines = {name: create_async_engine(world.resources[name]) for name in BOTH}
    with txsaga.connect(world.home, resources=engines, roles=False, answering=False) as looped:
        asyncio.run(_pay(looped, world))
    recover(broker, world)


async def _pay(broker: Broker, world: World) -> None:
    producer = teller(broker)
    for id in fresh_ids(world):
        async with producer.coordinated(*BOTH) as tx:
            for name in BOTH:
                async with tx.on(name) as connection:
                    await connection.run_sync(book, id, tx.txid or 0)
            await tx.send(CREDITS, f"{id} {tx.txid}".encode(), key=id)
        world.note("acknowledged", f"{id} {tx.txid}")
