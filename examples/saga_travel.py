"""
A trip that is booked in three places, each with a commit of its own: all bookings stay, or they are undone.

    python examples/saga_travel.py        needs nothing but this package; it starts its own database

Three trips are shown: one that goes well, one for which there is no seat left, and one whose process is killed behind
the second booking. What that one left is undone by whoever comes next with its key, or else by an engine
(`txsaga engine --sagas saga_travel`) half a minute later: what undoes it lies in the store.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from rich.console import Console
from rich.table import Table
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import IntegrityError

import txsaga
from txsaga import EmbeddedServer

PLACES = ("bank", "hotels", "flights")
TABLES = "CREATE TABLE IF NOT EXISTS stock (name text PRIMARY KEY, n bigint NOT NULL CHECK (n >= 0))"
START = {"bank": ("account-7", 1_000), "hotels": ("room", 5), "flights": ("seat", 1)}
TAKE = "UPDATE stock SET n = n - :n WHERE name = :name"
GIVE_BACK = "UPDATE stock SET n = n + :n WHERE name = :name"
screen = Console(highlight=False)


# What a user of txsaga writes -----------------------------------------------------------------------------


def debit(connection: Connection, name: str, n: int) -> None:
    """Take money from an account."""
    connection.execute(text(TAKE), {"name": name, "n": n})


@txsaga.compensation("travel.refund")
def refund(connection: Connection, name: str, n: int) -> None:
    """Give it back; any process that loads this module can."""
    connection.execute(text(GIVE_BACK), {"name": name, "n": n})


def travel(broker: txsaga.Broker, key: str, *, dies: bool = False) -> None:
    """Pay, book a room, book a seat, and tell; or undo what was done of it."""
    with broker.saga("travel", key=key) as saga:
        saga.step(debit, on="bank", compensate=refund, input={"name": "account-7", "n": 300})
        saga.step(TAKE, on="hotels", compensate=GIVE_BACK, input={"name": "room", "n": 1}, name="book a room")
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        saga.step(TAKE, on="flights", compensate=GIVE_BACK, input={"name": "seat", "n": 1}, name="book a seat")
        saga.send("trips", f"{key} is booked".encode())


# What shows it --------------------------------------------------------------------------------------------


def main() -> None:
    """Show the three trips."""
    logging.basicConfig(level=logging.ERROR)
    with places() as engines, connected(engines) as broker:
        fill(engines)
        if not any(topic.name == "trips" for topic in broker.kernel.store.registry.topics()):
            broker.create_topic("trips", "transaction", queues=1)
        run = secrets.token_hex(3)
        show("before", engines)
        travel(broker, f"trip-1-{run}")
        show("booked", engines)
        with suppress(IntegrityError):
            travel(broker, f"trip-2-{run}")
        show("no seat: undone", engines)
        killed = subprocess.run([sys.executable, __file__, f"trip-3-{run}"], check=False)
        assert killed.returncode == -signal.SIGKILL
        show("killed", engines)
        with suppress(IntegrityError):
            travel(broker, f"trip-3-{run}")
        show("tried again: undone first, and there is no seat", engines)


@contextmanager
def places() -> Iterator[dict[str, Engine]]:
    """Open the places; start the database if nobody has."""
    server = EmbeddedServer.from_env(os.environ)
    found = server.status().running
    server.ensure()
    try:
        engines = {name: create_engine(server.database(name).url(name)) for name in PLACES}
        yield engines
        for engine in engines.values():
            engine.dispose()
    finally:
        if not found:
            server.stop()


def fill(engines: dict[str, Engine]) -> None:
    """Give every place what it begins with."""
    for name, engine in engines.items():
        stock, n = START[name]
        with engine.begin() as connection:
            connection.execute(text(TABLES))
            begin = "INSERT INTO stock VALUES (:name, :n) ON CONFLICT (name) DO UPDATE SET n = :n"
            connection.execute(text(begin), {"name": stock, "n": n})


def connected(engines: dict[str, Engine]) -> Any:  # a broker, for a block
    """Open the broker."""
    return txsaga.connect(resources=engines, roles=False, answering=False)


def show(moment: str, engines: dict[str, Engine]) -> None:
    """Print what every place has left."""
    table = Table(title=moment, title_justify="left")
    for name in engines:
        table.add_column(f"{name}: {START[name][0]}")
    left = []
    for engine in engines.values():
        with engine.connect() as connection:
            left.append(str(connection.execute(text("SELECT n FROM stock")).scalar_one()))
    table.add_row(*left)
    screen.print(table)


if __name__ == "__main__":
    if sys.argv[1:]:
        with places() as engines, connected(engines) as broker:
            travel(broker, sys.argv[1], dies=True)
    else:
        main()
