"""
Clients of the open catalog whose server or store is killed: each repeats with its key until the answer is final.

Every commit counts three tables on: it requires the sort order that it saw and sets the other one, so that a second
application of it is refused or shows in the history, which is read from the metadata files themselves.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from http.client import HTTPConnection, HTTPException
from itertools import count, cycle
from pathlib import Path
from threading import Event, Thread
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import httpx
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

import txsaga
from tests.chaos.child import PROGRAMS, warm
from tests.chaos.coordinated import Refused
from tests.chaos.invariants import delivered
from tests.chaos.lake_programs import clerk
from tests.chaos.scenarios import CREDITS
from tests.chaos.soaking import settle
from tests.chaos.test_server_killed import kill_all
from tests.chaos.transfers import Part
from tests.chaos.world import World, database
from tests.open_catalog.asking import SCHEMA, change, committed
from tests.services.free_port import free_port
from txsaga import config
from txsaga.broker import Broker
from txsaga.cli.__main__ import main
from txsaga.core.facts import Fact
from txsaga.embedded.server import EmbeddedServer
from txsaga.errors import TxSagaError
from txsaga.lake.table import TableName
from txsaga.testing.kill import FACTS, KILL, Count, KillPoint

TABLES = ("a", "b", "c")
PORTS = "ports"
SERVER_HOME = "server"
OWN_CLOCK = ("Enlisting", "Enlisted", "Holding", "Held")
"""Facts that come by the clock."""
PATIENCE = 60.0
LISTED = "SELECT table_name, metadata_location FROM {s}.iceberg_tables WHERE table_namespace = 'bank' ORDER BY 1"
_seen = Count()
SERVED = ("uvicorn", "txsaga.catalog.app", "txsaga.catalog.open_catalog", "txsaga.cli.catalog.serve")
BEHIND_IT = ("txsaga.lake.lake", "txsaga.store.migrate", "alembic.runtime.migration", "alembic.script")
warm.set_forkserver_preload([*(f"tests.chaos.{each}" for each in (*PROGRAMS, "catalog_town")), *SERVED, *BEHIND_IT])


class Server:
    """`txsaga catalog` as a process of its own, forked from one that has imported everything."""

    def __init__(self, world: World, env: Mapping[str, str] = MappingProxyType({})) -> None:
        self.port = free_port()
        self._process = warm.Process(target=serve, args=(world, self.port, dict(env)), daemon=True)
        self._process.start()
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=PATIENCE)
        self._wait_for_it()

    def _wait_for_it(self) -> None:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self._process.exitcode is None:
            with suppress(httpx.TransportError):
                if self.client.get("/v1/config").is_success:
                    return
            time.sleep(0.02)
        raise AssertionError(f"the catalog does not answer; it ended with {self._process.exitcode}")

    def ended(self, wait: float = 10) -> int | None:
        """Wait for its end; return its code."""
        self._process.join(wait)
        return self._process.exitcode

    def close(self) -> None:
        """Kill it."""
        self.client.close()
        self._process.kill()
        self._process.join()


def serve(world: World, port: int, env: Mapping[str, str]) -> None:
    """Run the program."""
    os.environ.update(env, TXSAGA_URL=world.home, TXSAGA_WAREHOUSE=str(world.folder / "warehouse"))
    sys.stdout = Path(os.devnull).open("w")  # as long as the process
    sys.exit(main(["catalog", "--port", str(port)]))


def killed_at(point: str) -> dict[str, str]:
    """Return the settings of a process that is killed at a point."""
    return {"TXSAGA_OBSERVERS": "txsaga.testing.kill:observer", KILL: point}


def recording(path: Path) -> dict[str, str]:
    """Return the settings of a process that records its points."""
    return {"TXSAGA_OBSERVERS": "txsaga.testing.kill:recorder", FACTS: str(path)}


def kill_store(fact: Fact) -> None:
    """Kill the server of the store, not this process, at a point."""
    if _seen(fact) == KillPoint.parse(config.KILL.read("the kill point", os.environ[KILL])):
        kill_all(EmbeddedServer(home=Path(os.environ["TXSAGA_HOME"])))


@contextmanager
def opened(world: World) -> Iterator[Broker]:
    """Open the store and its tables."""
    place = world.folder / "warehouse"
    with txsaga.connect(world.home, warehouse=place, roles=False, answering=False, env={}) as broker:
        yield broker


def found(world: World, rest: httpx.Client) -> None:
    """Create the tables, with two sort orders each."""
    with opened(world) as broker:
        clerk(broker)
    assert rest.post("/v1/namespaces", json={"namespace": ["bank"], "properties": {}}).is_success
    order = {"fields": [{"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}]}
    for name in TABLES:
        body = {"name": name, "schema": SCHEMA, "write-order": {**order, "order-id": 1}, "properties": {"n": "0"}}
        assert rest.post("/v1/namespaces/bank/tables", json=body).is_success
        added = {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}}
        assert committed(rest, {**change(name), "updates": [added]}).is_success


def counted_on(rest: httpx.Client, id: str) -> list[dict[str, Any]]:
    """Return the commit that counts the tables on from what they are now."""
    answer = rest.get("/v1/namespaces/bank/tables/a")
    answer.raise_for_status()
    order = answer.json()["metadata"]["default-sort-order-id"]
    require = {"type": "assert-default-sort-order-id", "default-sort-order-id": order}
    flip = {"action": "set-default-sort-order", "sort-order-id": 1 - order}
    changes = [change(name, require, n=id) for name in TABLES]
    return [{**each, "updates": [*each["updates"], flip]} for each in changes]


def insist(clients: Sequence[httpx.Client], changes: Sequence[dict[str, Any]], **scope: str) -> int:
    """Repeat a commit, at one server after the other, until the answer is final."""
    end = time.monotonic() + PATIENCE
    for number in count():
        with suppress(httpx.TransportError):
            answer = committed(clients[number % len(clients)], *changes, **scope)
            if answer.status_code < 500:
                return answer.status_code
        if time.monotonic() > end:
            break
        time.sleep(0.05)
    raise TimeoutError("no server gives a final answer")


@contextmanager
def pursued(server: EmbeddedServer) -> Iterator[list[float]]:
    """Start a server again whenever it was killed."""
    stopped, restarts = Event(), list[float]()

    def pursue() -> None:
        done = False
        while not done:
            done = stopped.wait(0.05)
            if not server.status().running:
                server.ensure()
                restarts.append(time.monotonic())

    thread = Thread(target=pursue)
    thread.start()
    try:
        yield restarts
    finally:
        stopped.set()
        thread.join()


def history(world: World, table: str) -> list[str]:
    """Return what a table counted, version by version from its first one."""
    with opened(world) as broker:
        at: str | None = broker.kernel.tables.lake.catalog.pointer(TableName("txsaga", "bank", table))
    counted = []
    while at is not None:
        raw = read(at)
        counted.append(raw["properties"]["n"])
        at = raw["metadata-log"][-1]["metadata-file"] if raw.get("metadata-log") else None
    return [each for each in reversed(counted) if each != "0"]


def read(location: str) -> Any:
    """Read a metadata file."""
    return json.loads(Path(location.removeprefix("file://")).read_text())


class Audit:
    """What the tables went through, against what clients were told and what readers saw."""

    def __init__(self, world: World) -> None:
        self._world = world
        a, b, c = (history(world, table) for table in TABLES)
        self.counted, self.whole = a, a == b == c
        self.lost = set(world.notes("acknowledged")) - set(a)
        self.resurrected = set(world.notes("refused")) & set(a)
        self.doubled = [id for id in set(a) if a.count(id) > 1]
        self.reads, self.torn = Counter[str](), list(world.notes("torn"))
        for kind in sorted(path.name for path in world.folder.glob("reads *")):
            self._follow(kind)

    def _follow(self, kind: str) -> None:
        """A reader that loads a, b, c, a, … never sees a table behind the one before it."""
        place = {"0": -1} | {id: at for at, id in enumerate(self.counted)}
        latest = -1
        for line in self._world.notes(kind):
            self.reads[kind.rpartition(" ")[0]] += 1
            at = place.get(line.partition(" ")[2])
            if at is None or at < latest:
                self.torn.append(f"{kind}: {line}, after {latest}")
            else:
                latest = at

    def require(self) -> None:
        """Fail if anything is wrong."""
        assert self.whole, {table: history(self._world, table)[-3:] for table in TABLES}
        assert not any(wrong for _, wrong in self._wrong()), self._wrong()
        assert not self._world.notes("answered wrongly")
        joined = set(self._world.notes("joined"))
        assert sorted(id for id in self.counted if id in joined) == delivered(self._world, CREDITS)

    def __str__(self) -> str:
        figures = (f"{len(each)} {what}" for what, each in self._wrong())
        refused = len(self._world.notes("refused"))
        reads = " and ".join(f"{count} {kind}" for kind, count in sorted(self.reads.items()))
        return f"{len(self.counted)} commits, {refused} refused, {reads}: {', '.join(figures)}"

    def _wrong(self) -> list[tuple[str, Sequence[object]]]:
        wrong = {"torn": self.torn, "lost": [*self.lost], "doubled": self.doubled, "resurrected": [*self.resurrected]}
        return list(wrong.items())


def load(world: World, seed: int) -> None:
    """Load the tables in turn at any server, and note what each counts."""
    servers = cycle([HTTPConnection("127.0.0.1", int(port), timeout=20) for port in world.notes(PORTS)])
    server = next(servers)
    with (world.folder / f"reads by clients {os.getpid()}").open("a", buffering=1) as notes:
        for table in cycle(TABLES):
            while (counts := loaded(server, table)) is None:
                server = next(servers)
            notes.write(f"{table} {counts}\n")


def loaded(server: HTTPConnection, table: str) -> str | None:
    """Load a table; return what it counts, or nothing without an answer."""
    try:
        server.request("GET", f"/v1/namespaces/bank/tables/{table}")
        answer = server.getresponse()
        body = answer.read()
        if answer.status < 500:
            return str(json.loads(body)["metadata"]["properties"]["n"]) if answer.status == 200 else f"{answer.status}"
    except (OSError, HTTPException):
        server.close()
    time.sleep(0.02)
    return None


def compare(world: World, seed: int) -> None:
    """Read where all tables point in one statement, as a JDBC catalog would: they count the same."""
    with (world.folder / f"reads of pointers {os.getpid()}").open("a", buffering=1) as notes:
        while True:
            with suppress(SQLAlchemyError), database(world.home_database) as engine, engine.connect() as connection:
                while True:
                    rows = connection.execute(text(LISTED.format(s=world.name))).all()
                    connection.rollback()
                    seen = [counts_at(at) for _, at in rows]
                    notes.write("".join(f"{table} {each}\n" for (table, _), each in zip(rows, seen, strict=True)))
                    if len(set(seen)) != 1:
                        world.note("torn", f"listed {seen}")
            time.sleep(0.02)


@lru_cache
def counts_at(location: str) -> str:
    """Return what a metadata file counts; a file never changes."""
    return str(read(location)["properties"]["n"])


def clients_of(world: World) -> list[httpx.Client]:
    """Return a client of each server."""
    return [httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) for port in world.notes(PORTS)]


def write(world: World, seed: int) -> None:
    """Count on, one commit after the other, some of them with a requirement that no table meets."""
    clients = clients_of(world)
    while True:
        random.shuffle(clients)
        id = str(uuid4())
        with suppress(httpx.HTTPError, TimeoutError):
            changes = counted_on(clients[0], id)
            if not random.randrange(6):
                changes[random.randrange(3)]["requirements"].append({"type": "assert-table-uuid", "uuid": id})
            note(world, id, insist(clients, changes, key=id))


def note(world: World, id: str, status: int) -> None:
    """Note a final answer."""
    world.note({204: "acknowledged", 409: "refused"}.get(status, "answered wrongly"), id)


def join(world: World, seed: int) -> None:
    """Count on in transactions with a message."""
    clients = clients_of(world)
    with opened(world) as broker:
        while True:
            random.shuffle(clients)
            with suppress(httpx.HTTPError, TimeoutError, TxSagaError):
                send_and_count(broker, world, clients, str(uuid4()))


def send_and_count(broker: Broker, world: World, clients: Sequence[httpx.Client], id: str) -> None:
    """Send a message and count on, as one transaction."""
    world.note("joined", id)
    try:
        with clerk(broker).transaction(key=id) as tx:
            tx.send(CREDITS, id.encode(), key=id)
            if insist(clients, counted_on(clients[0], id), token=tx.token(), key=id) != 204:
                raise Refused
    except Refused:
        world.note("refused", id)
    else:
        world.note("acknowledged", id)


def serve_town(number: int, world: World, seed: int) -> None:
    """Serve at one of the ports, now and then to be killed at a fact of a commit."""
    fact = random.choice(("Opened", "Filing", "Filed", "Ended", "Deciding", "Building", "Built", "Decided"))
    serve(world, int(world.notes(PORTS)[number]), killed_at(f"{fact}:{random.randint(5, 40)}"))


PARTS: dict[str, Part] = {
    "server 0": partial(serve_town, 0),
    "server 1": partial(serve_town, 1),
    "a writer": write,
    "another one": write,
    "a joined writer": join,
    "engine": settle,
    "reader": load,
    "another reader": load,
    "pointers": compare,
}
