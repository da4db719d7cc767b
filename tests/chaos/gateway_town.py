"""
Transfers by RocketMQ's official Python client through three gateways, while everybody is killed.

A producer sends half messages, writes what became of each into the bank, and ends most of them; a client that stays
answers for it; a consumer credits what comes. Who is asked about a transfer that is not in the bank rolls it back
there first, so that it can't be committed later.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from sqlalchemy import text

import txsaga
from tests.chaos.scenarios import CREDITS
from tests.chaos.transfers import Part, Town, run_engine
from tests.chaos.world import World, database
from txsaga.errors import TxSagaError

BOOKS = "CREATE TABLE outcome (id text PRIMARY KEY, how text NOT NULL); CREATE TABLE credit (id text PRIMARY KEY)"
COMMIT, ROLLBACK = "commit", "roll back"
PORTS = "ports"
GATEWAYS = 3
ANEW = 10
"""Seconds that the answering client stays: after its gateway died, it would connect again only within five minutes."""


def client_of(world: World) -> Any:
    """Return the configuration of a client: all gateways, in an order of its own."""
    from rocketmq import ClientConfiguration, Credentials

    os.environ["HOME"] = str(world.folder)  # where the client logs
    ports = world.notes(PORTS)
    random.Random(os.getpid()).shuffle(ports)
    return ClientConfiguration(";".join(f"127.0.0.1:{port}" for port in ports), Credentials(), request_timeout=3)


def answering(world: World) -> Any:
    """Return the checker of a client."""
    from rocketmq import TransactionChecker, TransactionResolution

    class Books(TransactionChecker):  # type: ignore[misc]  # it has no types
        """Looks into the bank."""

        def check(self, message: Any) -> Any:
            how = settled(world, message.body.decode(), ROLLBACK)
            return TransactionResolution.COMMIT if how == COMMIT else TransactionResolution.ROLLBACK

    return Books()


def settled(world: World, id: str, how: str) -> str:
    """Write the outcome of a transfer, unless there is one; return the one that is there."""
    with database(world.bank) as engine, engine.begin() as connection:
        values = {"id": id, "how": how}
        connection.execute(text("INSERT INTO outcome VALUES (:id, :how) ON CONFLICT DO NOTHING"), values)
        return str(connection.execute(text("SELECT how FROM outcome WHERE id = :id"), values).scalar_one())


def produce(world: World, seed: int) -> None:
    """Transfer what nobody has tried yet, in a way that the seed draws for each."""
    from rocketmq import Message, Producer

    producer = Producer(client_of(world), (CREDITS,), checker=answering(world))
    producer.startup()
    assert producer._init_settings_event.wait(10)  # without settings, it sends a half message up to three times
    for id in world.notes("wanted")[len(world.notes("tried")) :]:
        world.note("tried", id)
        with suppress(Exception):  # the bank says what becomes of it
            message = Message()
            message.topic, message.body, message.keys = CREDITS, id.encode(), id
            transaction = producer.begin_transaction()
            producer.send(message, transaction)
            end(world, transaction, id, random.Random(f"{seed} {id}").choice((COMMIT, COMMIT, ROLLBACK, "leave", None)))
    producer.shutdown()


def end(world: World, transaction: Any, id: str, way: str | None) -> None:
    """Do the local work and end a transaction, or leave it after the work, or before."""
    if way is None:
        return
    how = settled(world, id, ROLLBACK if way == ROLLBACK else COMMIT)
    if way != "leave":
        transaction.commit() if how == COMMIT else transaction.rollback()


def check(world: World, seed: int) -> None:
    """Answer for producers that died."""
    from rocketmq import Producer

    def stay() -> None:
        producer = Producer(client_of(world), (CREDITS,), checker=answering(world))
        producer.startup()
        time.sleep(ANEW)
        producer.shutdown()

    again(stay)


def deliver(world: World, seed: int) -> None:
    """Run the roles."""
    again(lambda: run_engine(world, seed))


def consume(world: World, seed: int) -> None:
    """Credit what comes, each once however often it comes."""
    from rocketmq import FilterExpression, SimpleConsumer

    def work() -> None:
        consumer = SimpleConsumer(client_of(world), "savings", {CREDITS: FilterExpression()}, 2)
        consumer.startup()
        while True:
            for message in consumer.receive(16, 3) or []:
                with database(world.bank) as savings, savings.begin() as connection:
                    credit = "INSERT INTO credit VALUES (:id) ON CONFLICT DO NOTHING"
                    connection.execute(text(credit), {"id": message.body.decode()})
                consumer.ack(message)

    again(work)


def serve(number: int, world: World, seed: int) -> None:
    """Serve at one of the ports."""
    from txsaga.gateway.server import GatewayServer

    async def listen() -> None:
        server = GatewayServer(broker)
        await server.start(f"127.0.0.1:{world.notes(PORTS)[number]}")
        await asyncio.Event().wait()

    while True:
        with suppress(TxSagaError), txsaga.connect(world.home, roles=False, check_threads=64, env={}) as broker:
            asyncio.run(listen())


def again(work: Callable[[], None]) -> None:
    """Begin anew when the servers that it needs were not there."""
    while True:
        with suppress(Exception):
            work()


PARTS: dict[str, Part] = {
    "producer": produce,
    "checker": check,
    "engine": deliver,
    "consumer": consume,
    **{f"gateway {number}": partial(serve, number) for number in range(GATEWAYS)},
}


class GatewayTown(Town):
    """The processes of one run, and the server of the store."""

    def __init__(self, world: World, seed: int, kill_store: Callable[[], None]) -> None:
        super().__init__(world, seed, PARTS)
        self._kill_store = kill_store

    def kill_somebody(self, seldom: float = 0.5) -> None:
        """Kill a process, or one time in twelve the server."""
        if self._random.randrange(12):
            super().kill_somebody(seldom)
            return
        self._kill_store()
        self.kills.append("store")
