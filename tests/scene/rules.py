"""What the tests of the rules start from: a store, brokers on it, a database of somebody's books, a probe."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Protocol

import pytest
from sqlalchemy import Connection, Engine, NullPool, create_engine, text

import txsaga
from tests.contracts.samples import drain, row
from tests.scene.patience import eventually
from tests.scene.probe import Probe
from tests.services.databases import DatabaseServer
from txsaga.broker import Broker
from txsaga.checkback.profile import CheckProfile
from txsaga.consume.stream import Stream
from txsaga.core.announcer import Observer
from txsaga.core.chunk import BODY, Chunk
from txsaga.core.decision import LocalState
from txsaga.core.layout import Batch
from txsaga.core.records import Half
from txsaga.messages.producer import Producer
from txsaga.messages.transaction import Transaction
from txsaga.testing.checking import check_once
from txsaga.wiring.connecting import open_store

AT_ONCE = CheckProfile(min_age=timedelta(0), interval=timedelta(0))


class OpenBroker(Protocol):
    """Opens brokers as other processes would."""

    def __call__(self, *observers: Observer, **resources: Engine) -> Broker:
        """Open a broker that runs no roles."""
        ...


@pytest.fixture
def store_url(home_url: str) -> str:
    """Give the URL of a fresh store."""
    open_store(home_url).close()
    return home_url


@pytest.fixture
def open_broker(store_url: str) -> Iterator[OpenBroker]:
    """Give a factory of brokers on the same store, each as good as a process of its own."""
    opened: list[Broker] = []

    def open(*observers: Observer, **resources: Engine) -> Broker:
        opened.append(txsaga.connect(store_url, resources=resources, observers=observers, roles=False, answering=False))
        return opened[-1]

    yield open
    for broker in opened:
        broker.close()


@pytest.fixture(scope="session")
def library(server: DatabaseServer) -> str:
    """Give the URL of the one database for everybody's books: making and dropping one takes long."""
    server.database("library")
    return server.url("library")


@pytest.fixture
def books(library: str) -> Iterator[Engine]:
    """Give a database of somebody's books, empty but for evidence of other stores."""
    engine = create_engine(library, poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS entry"))
        connection.execute(text("CREATE TABLE entry (id int PRIMARY KEY)"))
    yield engine
    engine.dispose()


@pytest.fixture
def broker(open_broker: OpenBroker, books: Engine) -> Broker:
    """Give a broker that knows the books, with one topic of one queue."""
    opened = open_broker(books=books)
    opened.create_topic("orders", "transaction", queues=1)
    return opened


@pytest.fixture
def seller(broker: Broker) -> Producer:
    """Give a producer whose checker can't tell."""
    return broker.producer("shop", checker=lambda question: LocalState.UNKNOWN)


@pytest.fixture
def probe(store_url: str) -> Iterator[Probe]:
    """Give a look into the store."""
    probe = Probe(store_url)
    yield probe
    probe.close()


def write_entry(connection: Connection, id: int = 1) -> None:
    """Do some local work."""
    connection.execute(text("INSERT INTO entry VALUES (:id)"), {"id": id})


def entries_in(books: Engine) -> int:
    """Count the local work that was committed."""
    with books.connect() as connection:
        return int(connection.execute(text("SELECT count(*) FROM entry")).scalar_one())


def left_after_local(producer: Producer, body: bytes = b"a", key: str | None = None) -> Transaction:
    """Run a block up to its decision, as a process that was killed there."""
    tx = producer.transaction(key=key)
    tx.__enter__()
    tx.send("orders", body)
    with tx.local("books") as connection:
        write_entry(connection)
    return tx


def left_before_local(broker: Broker, producer: Producer, body: bytes = b"a", resource: str = "books") -> str:
    """Close a transaction without a key, as a process that was killed before its local work; return its id."""
    recorded, _ = broker.kernel.resource(resource)
    (qid,) = broker.kernel.store.registry.topic("orders").qids
    receipt = broker.kernel.stores.call(Half(producer.group.id, [row(qid, body.decode())], recorded.id))
    return broker.identity.transaction(receipt.txid)


def read(broker: Broker, topic: str = "orders") -> list[bytes]:
    """Tick, and return what readers of a topic see."""
    store = broker.kernel.store
    drain(store)
    entries = [entry for qid in store.registry.topic(topic).qids for entry in store.log.fetch(qid, 0, 10_000)]
    return [body for entry in entries for body in Chunk(entry.body).column(BODY) or [] if body is not None]


def check_back(broker: Broker) -> int:
    """Run one round of check-back on all that lies there now; return how many were settled."""
    if "news" not in [topic.name for topic in broker.kernel.store.registry.topics()]:
        broker.create_topic("news", queues=1)
    broker.producer("newsroom").send("news", b"so that there is a tick to sweep up to")
    drain(broker.kernel.store)
    before = undecided(broker)
    check_once(broker, AT_ONCE)
    return len(before - undecided(broker))


def undecided(broker: Broker) -> set[int]:
    """Return the numbers of all transactions without a decision."""
    return {view.txid for view in broker.kernel.store.overview.transactions(undecided=True, limit=1000)}


def batch_of(stream: Stream, qid: int) -> Batch:
    """Read on until a chunk of one queue comes."""

    def found() -> Batch | None:
        batch = stream.poll()
        return batch if batch is not None and batch.qid == qid else None

    batch = eventually(found, "a chunk")
    assert batch is not None
    return batch


def expire(probe: Probe, name: str) -> None:
    """Let a member's lease run out, and nobody be heard of for a minute."""
    probe.run("UPDATE lease SET until = clock_timestamp() - interval '1 second' WHERE holder = :name", name=name)
    probe.run("UPDATE tx SET touched = touched - interval '1 minute'")
