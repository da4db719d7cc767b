"""Ticks give out each decision once, whoever commits when, and whichever dispatchers are about."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Event

import pytest
from sqlalchemy import Connection, Engine, NullPool, create_engine, text

import txsaga
from tests.contracts.samples import drain, is_held, start
from tests.scene.stored import Stored
from tests.services.databases import fresh_name
from txsaga.broker import Broker
from txsaga.core.chunk import BODY, Chunk
from txsaga.core.decision import Decision
from txsaga.core.records import TickResult
from txsaga.messages.producer import Producer
from txsaga.store.connection import parse_url
from txsaga.store.store import Store
from txsaga.wiring.connecting import open_store

pytestmark = pytest.mark.postgres

QUEUES, WRITERS, EACH, DISPATCHERS = 2, 4, 80, 3
HELD = ["held:0", "held:1", "held:2"]
SLOWEST = 0.012  # seconds from the first row of a transaction to its commit


@pytest.fixture
def broker(home_url: str) -> Iterator[Broker]:
    open_store(home_url).close()
    with txsaga.connect(home_url, roles=False, answering=False, env={}) as broker:
        broker.create_topic("news", "transaction", queues=QUEUES)
        yield broker


@pytest.fixture
def stored(home_url: str) -> Stored:
    return Stored(home_url)


@pytest.fixture
def callers(home_url: str) -> Engine:
    """Give the engine of a program that uses the home database for itself."""
    return create_engine(parse_url(home_url)[0], poolclass=NullPool)


@pytest.fixture
def plain(broker: Broker) -> Producer:
    return broker.producer("plain")


@contextmanager
def held_open(engine: Engine, work: Callable[[Connection], object]) -> Iterator[Callable[[], None]]:
    """Hold a transaction prepared, bound to no session; give what commits it."""
    gid = fresh_name("held")
    with engine.connect() as connection:
        work(connection)
        connection.execute(text(f"PREPARE TRANSACTION '{gid}'"))
    closing = engine.execution_options(isolation_level="AUTOCOMMIT")

    def end(how: str) -> None:
        with closing.connect() as connection:
            connection.execute(text(f"{how} PREPARED '{gid}'"))
        ended.append(how)

    ended: list[str] = []
    try:
        yield lambda: end("COMMIT")
    finally:
        if not ended:
            end("ROLLBACK")


def send_all(producer: Producer, bodies: list[str], connection: Connection) -> None:
    sends = producer.join(connection)
    for body in bodies:
        sends.send("news", body.encode(), key=body.split(":")[0])


def write(engine: Engine, producer: Producer, name: str) -> list[str]:
    """Commit, or now and then roll back, one transaction after the other; return what was committed."""
    chance, committed = random.Random(name), list[str]()
    with engine.connect() as connection:
        for turn in range(EACH):
            bodies = [f"{name}:{turn}.{n}" for n in range(chance.choice((1, 1, 2, 5)))]
            send_all(producer, bodies, connection)
            connection.execute(text("SELECT pg_sleep(:s)"), {"s": chance.uniform(0, SLOWEST)})
            if chance.random() < 0.15:
                connection.rollback()
            else:
                connection.commit()
                committed += bodies
    return committed


def confirm(producer: Producer, name: str) -> list[str]:
    """Send halves and decide them, in order; return what was committed."""
    chance, committed = random.Random(name), list[str]()
    for turn in range(EACH):
        body = f"{name}:{turn}"
        receipt = producer.prepare_now("news", body.encode(), key=name)
        if chance.random() < 0.2:
            producer.roll_back(receipt)
        else:
            producer.commit(receipt)
            committed.append(body)
    return committed


def dispatch(url: str, seed: int, stop: Event) -> Counter[str]:
    """Tick like a process of its own, with any cap, until told to stop; count what came of it."""
    store, chance, came = Store.open(url), random.Random(seed), Counter[str]()
    try:
        while not stop.is_set():
            ticked = store.log.tick(chance.choice((1, 2, 3, 7, 1000)))
            came["lost" if ticked is None else "wrote" if ticked.chunks else "idle"] += 1
            stop.wait(chance.uniform(0, 0.004))
    finally:
        store.close()
    return came


def queues(broker: Broker) -> list[list[str]]:
    """Return what each queue holds; its offsets must have no gap."""
    store, found = broker.kernel.store, []
    for qid in store.registry.topic("news").qids:
        bodies: list[str] = []
        for entry in store.log.fetch(qid, 0, 10_000):
            assert entry.base == len(bodies)
            bodies += [body.decode() for body in Chunk(entry.body).column(BODY) or [] if body is not None]
        assert store.log.bounds([qid])[qid].head == len(bodies)
        found.append(bodies)
    return found


def ticks(stored: Stored) -> int:
    return int(stored.value("SELECT count(*) FROM tick"))


@pytest.mark.req("RMQ-21")
def test_any_commits_and_rival_dispatchers_log_each_decision_once_and_in_order(
    home_url: str, broker: Broker, callers: Engine, plain: Producer
) -> None:
    asking = broker.producer("asking", checker=lambda question: None)
    stop, names = Event(), [f"writer{n}" for n in range(WRITERS)]
    with ThreadPoolExecutor(DISPATCHERS) as tickers, held_open(callers, partial(send_all, plain, HELD)) as let_go:
        dispatching = [tickers.submit(dispatch, home_url, seed, stop) for seed in range(DISPATCHERS)]
        with ThreadPoolExecutor(WRITERS + 1) as writers:
            writing = {name: writers.submit(write, callers, plain, name) for name in names}
            writing["asking"] = writers.submit(confirm, asking, "asking")
        stop.set()
        came = sum((each.result() for each in dispatching), Counter[str]())
        drain(broker.kernel.store, limit=3)
        before = queues(broker)
        let_go()
    drain(broker.kernel.store)
    after = queues(broker)

    assert came["wrote"] > 20, "the dispatchers did not work beside the writers"
    for name, each in writing.items():
        (where,) = {n for n, queue in enumerate(before) if any(body.startswith(f"{name}:") for body in queue)}
        assert [body for body in before[where] if body.startswith(f"{name}:")] == each.result()
    assert sum(map(len, before)) == sum(len(each.result()) for each in writing.values())
    assert [new[len(old) :] for old, new in zip(before, after, strict=True) if new != old] == [HELD]
    assert all(new[: len(old)] == old for old, new in zip(before, after, strict=True))


@pytest.mark.parametrize("cap", [1, 2, 3, 8])
def test_a_cap_never_cuts_through_a_transaction(
    stored: Stored, broker: Broker, callers: Engine, plain: Producer, cap: int
) -> None:
    many = [f"many:{n}" for n in range(7)]
    for bodies in (["before:0"], many, ["after:0"], ["after:1"]):
        with callers.begin() as connection:
            send_all(plain, bodies, connection)
    drain(broker.kernel.store, limit=cap)
    tick_of = dict(stored.rows("SELECT txid, at FROM log JOIN half USING (txid)"))
    of_many = {tick_of[txid] for txid in range(2, 9)}
    assert len(tick_of) == 10
    assert len(of_many) == 1
    assert tick_of[10] not in of_many, "the cap did not cap"
    read = [body for queue in queues(broker) for body in queue]
    assert sorted(read) == sorted(["before:0", *many, "after:0", "after:1"])


def test_a_capped_tick_remembers_who_was_running_below_and_above_the_cap(
    broker: Broker, callers: Engine, plain: Producer
) -> None:
    def commit(body: str) -> None:
        with callers.begin() as connection:
            send_all(plain, [body], connection)

    log, seen = broker.kernel.store.log, list[str]()

    def news() -> list[str]:
        fresh = Counter(body for queue in queues(broker) for body in queue) - Counter(seen)
        seen.extend(fresh.elements())
        return sorted(fresh.elements())

    with held_open(callers, partial(send_all, plain, ["x:low"])) as let_low_go:
        for n in range(3):
            commit(f"x:{n}")
        with held_open(callers, partial(send_all, plain, ["x:high"])) as let_high_go:
            for n in range(3, 6):
                commit(f"x:{n}")
            first = log.tick(1)
            assert first is not None
            assert first.more
            assert news() == ["x:0", "x:1"]
            let_low_go()
            let_high_go()
        drain(broker.kernel.store, limit=1)
    assert news() == ["x:2", "x:3", "x:4", "x:5", "x:high", "x:low"]
    drain(broker.kernel.store)
    assert news() == []


def test_an_idle_tick_writes_nothing(stored: Stored, broker: Broker, callers: Engine, plain: Producer) -> None:
    with held_open(callers, partial(send_all, plain, ["held:0"])):
        with callers.begin() as connection:
            send_all(plain, ["x:0"], connection)
        drain(broker.kernel.store)
        before = ticks(stored)
        stored.let_pass(3600)
        assert [broker.kernel.store.log.tick(1000) for _ in range(5)] == [TickResult(before - 1, 0, False)] * 5
        assert ticks(stored) == before


def test_a_dispatcher_that_finds_another_at_work_writes_nothing(
    stored: Stored, broker: Broker, callers: Engine, plain: Producer
) -> None:
    with callers.begin() as connection:
        send_all(plain, ["x:0"], connection)
    before = ticks(stored)
    with callers.begin() as rival:
        lock = "SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"
        rival.execute(text(lock), {"name": f'"{stored.namespace}".tick'})
        assert broker.kernel.store.log.tick(1000) is None
        assert (ticks(stored), stored.value("SELECT count(*) FROM log")) == (before, 0)
    drain(broker.kernel.store)
    assert [body for queue in queues(broker) for body in queue] == ["x:0"]


def test_a_dispatcher_whose_tick_a_rival_wrote_first_writes_nothing(
    stored: Stored, broker: Broker, callers: Engine, plain: Producer
) -> None:
    with callers.begin() as connection:
        send_all(plain, ["x:0"], connection)
    same_again = "INSERT INTO {s}.tick SELECT id + 1, snap, last_txid FROM {s}.tick ORDER BY id DESC LIMIT 1"
    with callers.begin() as rival:
        rival.execute(text(same_again.format(s=stored.namespace)))
        ticking = start(lambda: broker.kernel.store.log.tick(1000))
        assert is_held(ticking)
    assert ticking.result() is None
    assert stored.rows("SELECT (SELECT count(*) FROM log), (SELECT sum(head) FROM queue)") == [(0, 0)]
    drain(broker.kernel.store)
    assert [body for queue in queues(broker) for body in queue] == ["x:0"]


def test_a_tick_passes_by_what_was_rolled_back(stored: Stored, broker: Broker) -> None:
    asking = broker.producer("asking", checker=lambda question: None)
    standing = asking.roll_back(asking.prepare_now("news", b"never"))
    assert standing.decision is Decision.ROLLBACK
    drain(broker.kernel.store)
    assert queues(broker) == [[]] * QUEUES
    assert stored.value("SELECT count(*) FROM log") == 0


@pytest.mark.timeout(60)
def test_a_tick_that_takes_longer_than_the_hot_path_may_comes_to_its_end(
    broker: Broker, stored: Stored, callers: Engine, plain: Producer, home_url: str
) -> None:
    namespace = parse_url(home_url)[1]
    broker.create_topic("flat", "normal", queues=1)
    plain.send("flat", b"a")
    with callers.begin() as connection:  # as long as a decision of a million chunks
        connection.execute(
            text(f"""
            CREATE FUNCTION "{namespace}".slow() RETURNS trigger LANGUAGE plpgsql AS
              'BEGIN PERFORM pg_sleep(6); RETURN NULL; END';
            CREATE TRIGGER slow AFTER INSERT ON "{namespace}".log FOR EACH STATEMENT
              EXECUTE FUNCTION "{namespace}".slow()""")
        )
    ticked = broker.kernel.store.log.tick(100)
    assert ticked is not None and ticked.chunks == 1
