"""
The schedule of nine events: 1 an order, 2 4 5 main work, 3 6 the lane, 7 the lane's commit, 8 a message, 9 the end.

It is done in one process, or each event in a process of its own; either dies behind an event of one's choice.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Connection, text

from tests.chaos.coordinated import TILL_TOLD, teller
from tests.chaos.scenarios import CREDITS, ORDERS
from tests.chaos.world import BANK, MORTGAGE, World, database
from txsaga.broker import Broker
from txsaga.consume.delivery import Delivery
from txsaga.flows.coordinated import Coordinated
from txsaga.flows.flow import Flow

EVENTS = range(1, 10)
LANE_COMMIT, END = 7, 9
KEY = "nine"
INSERT = "INSERT INTO debit VALUES (:id, 'x')"
WORK = {2: BANK, 3: MORTGAGE, 4: MORTGAGE, 5: MORTGAGE, 6: MORTGAGE}
LANE = (3, 6)
HELD_FOR = timedelta(minutes=5)


def die() -> None:
    """Die as if the power had failed."""
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class InOne:
    """All events in one process, which dies behind the last of them."""

    last: int

    @property
    def __name__(self) -> str:
        """Name it."""
        return f"up to event {self.last}"

    @TILL_TOLD
    def __call__(self, broker: Broker, world: World) -> None:
        """Do them."""
        producer = teller(broker)
        order = received(broker)
        with producer.coordinated(BANK, MORTGAGE) as tx:
            for event in range(1, END):
                _do(tx, event, order)
                if event == self.last:
                    die()
        die()


def _do(tx: Coordinated, event: int, order: Delivery) -> None:
    lane = tx.lane(MORTGAGE)
    match event:
        case 1:
            tx.consume(order)
        case 7:
            lane.commit()
        case 8:
            tx.send(CREDITS, b"nine")
        case _:
            with lane if event in LANE else tx.on(WORK[event]) as connection:
                work(connection, event)


@dataclass(frozen=True)
class Alone:
    """One event in a process of its own, which dies behind it if it is to."""

    event: int
    hold: str
    dies: bool

    @property
    def __name__(self) -> str:
        """Name it."""
        return f"event {self.event}"

    @TILL_TOLD
    def __call__(self, broker: Broker, world: World) -> None:
        """Do it."""
        producer = teller(broker)
        flow = producer.begin_flow(BANK, MORTGAGE, lanes=[MORTGAGE], key=KEY)
        if self.event == 1:
            with flow.step("1"):
                flow.consume(received(broker))
        elif self.event == LANE_COMMIT:
            flow.lane(MORTGAGE).commit()
        elif self.event == END:
            flow.end()
        else:
            self._step(flow)
        if self.dies:
            die()

    def _step(self, flow: Flow) -> None:
        name = f"event {self.event}"
        if self.event == 8:
            with flow.step(name):
                flow.send(CREDITS, b"nine")
            return
        on, lane = (None, WORK[self.event]) if self.event in LANE else (WORK[self.event], None)
        with flow.step(name, hold=self.hold, on=on, lane=lane) as held:
            if self.hold == "journal":
                held.execute(INSERT, {"id": str(self.event)}, rows=1)
            else:
                work(held, self.event)


def work(connection: Connection, event: int) -> None:
    """Leave the row of an event."""
    connection.execute(text(INSERT), {"id": str(event)})


def received(broker: Broker) -> Delivery:
    """Receive the order."""
    broker.create_group("workers", max_attempts=None, first_retry=timedelta(0))
    consumer = broker.consumer("workers", [ORDERS], member="worker", batch=1, invisible=HELD_FOR)
    (order,) = consumer.receive(wait=5)
    return order


def order(broker: Broker, world: World) -> None:
    """Fill the topic that is consumed."""
    broker.create_topic(ORDERS, queues=1)
    broker.producer("shop").send(ORDERS, b"nine")
    dispatcher = broker.roles()[0]
    while dispatcher.run_once():
        pass


def rows(world: World) -> dict[str, list[int]]:
    """Read the events that each database shows."""
    found: dict[str, list[int]] = {}
    for name, url in world.resources.items():
        with database(url) as engine, engine.connect() as connection:
            found[name] = sorted(map(int, connection.execute(text("SELECT id FROM debit")).scalars()))
    return found


def due(last: int) -> dict[str, list[int]]:
    """Return what each database is to show when the last event was this one."""
    main = last >= END
    lane = [event for event in LANE if last >= LANE_COMMIT]
    return {BANK: [2] if main else [], MORTGAGE: sorted([*lane, *([4, 5] if main else [])])}


Stage = Callable[[Broker, World], None]


def stages(last: int, hold: str | None) -> list[Stage]:
    """Return the programs that do the events up to one; the last of them dies."""
    if hold is None:
        return [InOne(last)]
    return [Alone(event, hold, event == last) for event in range(1, last + 1)]


def again(broker: Broker) -> list[str]:
    """Return the orders that come again."""
    consumer = broker.consumer("workers", [ORDERS], member="other", batch=1)
    found = [message.text() for message in consumer.receive(wait=0)]
    consumer.close()
    return found
