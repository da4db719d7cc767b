"""Programs that run sagas, and what others do after a kill.

Each saga has five steps, three of them beside each other; four leave a line in a database, one of the three only
calls somebody. What was done and undone is counted later: nothing here keeps a line from being there twice.
"""

from __future__ import annotations

import time
from contextlib import suppress

from sqlalchemy import Connection, text

from tests.chaos.coordinated import PATIENCE, is_quiet
from tests.chaos.scenarios import AT_ONCE, CREDITS
from tests.chaos.world import BANK, MORTGAGE, World, database
from txsaga.broker import Broker
from txsaga.core.retry import patiently
from txsaga.errors import AlreadyCommitted, InDoubt, NotCompensated, StoreUnavailable
from txsaga.flows.actions import compensation
from txsaga.flows.saga import Saga

TABLE = "CREATE TABLE IF NOT EXISTS line (id serial, saga bigint, step int, what text)"
WRITE = "INSERT INTO line (saga, step, what) VALUES (:saga, :step, 'do')"
BOOKED = {1: BANK, 2: MORTGAGE, 4: BANK, 5: MORTGAGE}
"""The steps that work in a database, and which one."""
CALLED = 3
_here: list[World] = []


class Refused(Exception):
    """What the user's own code raises."""


def write(connection: Connection, saga: int, step: int, what: str = "do") -> None:
    """Leave a line."""
    values = {"saga": saga, "step": step, "what": what}
    connection.execute(text("INSERT INTO line (saga, step, what) VALUES (:saga, :step, :what)"), values)


def refuse(connection: Connection, saga: int, step: int) -> None:
    """Leave a line, and fail."""
    write(connection, saga, step)
    raise Refused


@compensation("chaos-undo")
def undo(connection: Connection, saga: int, step: int) -> None:
    """Undo it."""
    write(connection, saga, step, "undo")


def call(saga: int, step: int) -> None:
    """Call somebody."""
    _here[-1].note("calls", f"{saga} {step} do")


@compensation("chaos-call-off")
def call_off(saga: int, step: int) -> None:
    """Call it off."""
    _here[-1].note("calls", f"{saga} {step} undo")


@compensation("chaos-mail")
def mail(saga: int) -> None:
    """Tell the traveller."""
    _here[-1].note("calls", f"{saga} 6 do")


def found(broker: Broker, world: World) -> None:
    """Create what the programs work on."""
    broker.create_topic(CREDITS, "transaction", queues=2)
    for url in world.resources.values():
        with database(url) as engine, engine.begin() as connection:
            connection.exec_driver_sql(TABLE)


def book(saga: Saga, *, fails: bool) -> None:
    """Do five steps, three of them beside each other; the last one may fail."""

    def given(step: int) -> dict[str, object]:
        return {"saga": saga.join_life().txid, "step": step}

    saga.step(write, on=BANK, compensate=undo, input=given(1))
    with saga.parallel() as together:
        together.step(write, on=MORTGAGE, compensate=undo, input=given(2))
        together.step(call, compensate=call_off, input=given(CALLED))
        together.step(WRITE, on=BANK, compensate=undo, input=given(4))
    saga.send(CREDITS, str(saga.txid).encode())
    saga.step(refuse if fails else write, on=MORTGAGE, compensate=undo, input=given(5))
    saga.no_return()
    saga.step(mail, input={"saga": saga.txid})


def travel(broker: Broker, world: World) -> None:
    """Run a saga that succeeds."""
    _here.append(world)
    with broker.saga("travel") as saga:
        book(saga, fails=False)
    world.note("acknowledged", str(saga.txid))
    recover(broker, world)


def stay(broker: Broker, world: World) -> None:
    """Run a saga whose last step fails."""
    _here.append(world)
    with suppress(Refused), broker.saga("travel") as saga:
        book(saga, fails=True)
    recover(broker, world)


def travel_by_key(broker: Broker, world: World) -> None:
    """Run a saga under a key, as often as it takes."""
    _here.append(world)

    def once() -> None:
        try:
            with suppress(AlreadyCommitted), broker.saga("travel", key="trip-7") as saga:
                book(saga, fails=False)
        except (NotCompensated, InDoubt) as busy:
            raise StoreUnavailable(str(busy)) from busy

    patiently(once)
    recover(broker, world)


def recover(broker: Broker, world: World) -> None:
    """Run the roles until nothing is undecided, undelivered, or to be undone."""
    _here.append(world)
    broker.create_topic("nudges", queues=1)
    broker.producer("nudger").send("nudges", b"")
    roles = [*broker.own_roles(), *broker.roles(AT_ONCE)]
    end = time.monotonic() + PATIENCE
    while sum(role.run_once() for role in roles) or not is_quiet(broker) or broker.kernel.store.work.sagas():
        if time.monotonic() > end:
            raise AssertionError(f"not recovered within {PATIENCE:g} s")
