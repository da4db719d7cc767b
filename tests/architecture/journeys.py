"""
How far a reader has to go: the calls, the files and the moves between files of six ordinary calls.

`python -m tests.architecture.journeys` prints them, with `--json` as JSON. A journey is counted in the calling
thread, after a first one; the shortest of several counts, because threads share work.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import count
from types import FrameType

from sqlalchemy import Connection, Engine, create_engine, text

import txsaga
from tests.architecture.sources import PACKAGE
from txsaga import Broker, Producer
from txsaga.consume.dispatcher import Dispatcher
from txsaga.wiring.connecting import open_store

INSIDE = f"{PACKAGE}/"
INSERT = "INSERT INTO line VALUES (:what)"
TIMES = 5


@dataclass
class Journey:
    """What was called on the way, and how often a caller lies in another file."""

    calls: int = 0
    files: set[str] = field(default_factory=set)
    moves: int = 0

    def note(self, frame: FrameType, event: str, _: object) -> None:
        """Count a call of a function of the package; comprehensions are none."""
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(INSIDE) and not code.co_name.startswith("<"):
            self.calls += 1
            self.files.add(code.co_filename)
            self.moves += _file_of_caller(frame) not in (None, code.co_filename)

    @property
    def measures(self) -> dict[str, int]:
        """The figures by name."""
        return {"calls": self.calls, "files": len(self.files), "moves": self.moves}


def _file_of_caller(frame: FrameType) -> str | None:
    """Return the file of the nearest caller within the package."""
    caller = frame.f_back
    while caller is not None and not caller.f_code.co_filename.startswith(INSIDE):
        caller = caller.f_back
    return caller and caller.f_code.co_filename


def counted(walk: Callable[[], object]) -> Journey:
    """Count what a call does."""
    journey = Journey()
    sys.setprofile(journey.note)
    try:
        walk()
    finally:
        sys.setprofile(None)
    return journey


@dataclass
class Walker:
    """A program that makes every journey, on a store and a database of its own."""

    broker: Broker
    bank: Engine
    producer: Producer
    numbers: Iterator[int] = field(default_factory=count)

    def walks(self) -> dict[str, Callable[[], object]]:
        """Return the journeys by name, each ready to be made again and again."""
        return {
            "send and decide one message": self.send,
            "receive and ack one message": self.receive(),
            "a coordinated block with one INSERT": self.coordinate,
            "a step of a flow with one INSERT": self.step(),
            "the end of a flow with one journalled row": self.end_flow(),
            "a saga of one SQL step": self.saga,
            "one tick of the dispatcher": Dispatcher(self.broker.kernel).run_once,
        }

    def send(self) -> None:
        with self.producer.transaction() as tx:
            tx.send("orders", b"x")

    def receive(self) -> Callable[[], object]:
        self.broker.create_group("desk")
        consumer = self.broker.consumer("desk", ["news"], member="anna")

        def walk() -> None:
            (message,) = consumer.receive(1, wait=10)
            message.ack()

        for _ in range(1 + TIMES):
            self.broker.producer("plain").send("news", b"x")
        while Dispatcher(self.broker.kernel).run_once():
            pass
        return walk

    def coordinate(self) -> None:
        with self.producer.coordinated("bank") as tx, tx.on("bank") as connection:
            connection.execute(text(INSERT), {"what": "x"})

    def step(self) -> Callable[[], object]:
        flows = [self._opened() for _ in range(1 + TIMES)]

        def walk() -> None:
            with flows.pop().step("write", on="bank") as connection:
                connection.execute(text(INSERT), {"what": "x"})

        return walk

    def end_flow(self) -> Callable[[], object]:
        flows = [self._begun() for _ in range(1 + TIMES)]
        return lambda: flows.pop().end()

    def _opened(self) -> txsaga.Flow:
        return self.producer.begin_flow("bank", key=f"flow-{next(self.numbers)}")

    def _begun(self) -> txsaga.Flow:
        flow = self._opened()
        with flow.step("write", on="bank", hold="journal") as journal:
            journal.execute(INSERT, {"what": "x"}, rows=1)
        return flow

    def saga(self) -> None:
        with self.broker.saga("trips", key=f"trip-{next(self.numbers)}") as saga:
            saga.step(INSERT, on="bank", input={"what": "x"}, compensate="DELETE FROM line WHERE what = :what")


@contextmanager
def walker(home_url: str, bank_url: str) -> Iterator[Walker]:
    """Set the stage for the journeys."""
    with ExitStack() as stack:
        open_store(home_url).close()
        bank = create_engine(bank_url)
        stack.callback(bank.dispose)
        with bank.begin() as connection:
            _prepare(connection)
        broker = stack.enter_context(
            closing(txsaga.connect(home_url, resources={"bank": bank}, roles=False, answering=False, env={}))
        )
        broker.create_topic("orders", "transaction", queues=1)
        broker.create_topic("news", queues=1)
        yield Walker(broker, bank, broker.producer("shop", checker=lambda _: txsaga.UNKNOWN))


def _prepare(connection: Connection) -> None:
    connection.execute(text("CREATE TABLE line (what text)"))


def journeys(home_url: str, bank_url: str) -> dict[str, Journey]:
    """Make each journey once, then count the shortest of several."""
    found: dict[str, Journey] = {}
    with walker(home_url, bank_url) as walking:
        for name, walk in walking.walks().items():
            walk()
            found[name] = min((counted(walk) for _ in range(TIMES)), key=lambda journey: journey.calls)
    return found


def main() -> None:
    """Print them."""
    from tests.services.databases import fresh_name
    from tests.services.embedded import embedded_server

    with embedded_server() as server:
        for name in ("home", "bank"):
            server.database(name)
        home = f"{server.url('home')}?namespace={fresh_name('t')}"
        found = {name: each.measures for name, each in journeys(home, server.url("bank")).items()}
    if "--json" in sys.argv:
        sys.stdout.write(json.dumps(found) + "\n")
        return
    for name, measures in found.items():
        sys.stdout.write(f"{name:45}" + "".join(f"{value:6} {what}" for what, value in measures.items()) + "\n")


if __name__ == "__main__":
    main()
