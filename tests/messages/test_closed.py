"""A broker that is closed: what was not begun is refused, of what was under way nobody is told that it was not done."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, text

import txsaga
from tests.scene.shop import NEWS, ORDERS, Shop, says
from txsaga import COMMIT, Broker, Callables, Decision, LocalState, Message
from txsaga.checkback.profile import CheckProfile
from txsaga.clusters.broker_cluster import BrokerCluster
from txsaga.consume.consumer import Consumer
from txsaga.consume.stream import Stream
from txsaga.core.retry import patiently
from txsaga.errors import BrokerClosed, LeaseLost, OutcomeUnknown
from txsaga.messages.producer import Producer
from txsaga.messages.transaction import Transaction
from txsaga.rocketmq import TransactionMQProducer

OUTCOME = r"closed while transaction \d+ was in progress, so its outcome is not known here; check `txsaga tx show \d+`"
KEYS = pytest.mark.parametrize("key", [None, "order-1"])
OpenEngine = Callable[[str], Engine]


class Scene:
    """What a program has of a broker, from before it was closed."""

    def __init__(self, shop: Shop, engine: Engine) -> None:
        self.shop, self.broker = shop, shop.broker
        self.producer, self.plain = shop.mq_producer(), shop.broker.producer("press")
        self.broker.register("bank", engine)
        self.half = self.producer.prepare_now(ORDERS, b"a chair")
        self.plain.send(NEWS, b"x")
        shop.deliver()
        self.block, self.saga = self.producer.transaction(), self.producer.saga()
        self.coordinated = self.producer.coordinated("bank")
        self.stream: Stream = shop.broker.stream("readers", [NEWS])
        self.batch: Any = self.stream.poll()
        self.consumer: Consumer = shop.broker.consumer("workers", [NEWS])
        (self.message,) = self.consumer.receive()


Calls = dict[str, Callable[[Scene], Any]]

OF_A_BROKER: Calls = {
    "identity": lambda s: s.broker.identity,
    "vote": lambda s: s.broker.vote(1, "b", "anna", yes=True),
    "ballots": lambda s: s.broker.ballots(1),
    "flow": lambda s: s.broker.flow(1),
    "register": lambda s: s.broker.register("other", create_engine("sqlite://")),
    "enlist": lambda s: s.broker.enlist("cash", Callables(try_=print, confirm=print, cancel=print)),
    "producer": lambda s: s.broker.producer("shop", checker=says(COMMIT)),
    "saga": lambda s: s.broker.saga("travel"),
    "when_exhausted": lambda s: s.broker.when_exhausted("shop", lambda _: None),
    "answer_for": lambda s: s.broker.answer_for("shop", says(COMMIT)),
    "ask_runs": lambda s: s.broker.ask_runs(lambda *_: None),  # type: ignore[arg-type]  # never asked
    "stream": lambda s: s.broker.stream("readers", [NEWS]),
    "consumer": lambda s: s.broker.consumer("workers", [NEWS]),
    "cut": lambda s: s.broker.cut().__enter__(),
    "roles": lambda s: s.broker.roles(CheckProfile()),
    "own_roles": lambda s: s.broker.own_roles(),
    "create_topic": lambda s: s.broker.create_topic("late"),
    "alter_topic": lambda s: s.broker.alter_topic(NEWS),
    "purge_topic": lambda s: s.broker.purge_topic(NEWS),
    "delete_topic": lambda s: s.broker.delete_topic(NEWS),
    "reject_transactions": lambda s: s.broker.reject_transactions(False),
    "topics": lambda s: s.broker.topics,
    "replay": lambda s: s.broker.replay(1),
    "cluster": lambda s: s.broker.cluster,
    "join_cluster": lambda s: s.broker.join_cluster("east"),
    "set_kind": lambda s: s.broker.set_kind("shop", "any"),
    "set_checks": lambda s: s.broker.set_checks("shop", max_checks=3),
    "dead_letters": lambda s: s.broker.dead_letters,
    "create_group": lambda s: s.broker.create_group("more"),
    "alter_group": lambda s: s.broker.alter_group("workers", max_attempts=3),
    "delete_group": lambda s: s.broker.delete_group("workers"),
    "reset_group": lambda s: s.broker.reset_group("workers", "latest"),
    "leave_topic": lambda s: s.broker.leave_topic("workers", NEWS),
    "__enter__": lambda s: s.broker.__enter__(),
}

OF_A_PRODUCER: Calls = {
    "send": lambda s: s.plain.send(NEWS, b"x"),
    "submit": lambda s: s.plain.submit(NEWS, b"x"),
    "send_many": lambda s: s.plain.send_many(NEWS, [b"x"]),
    "recall": lambda s: s.producer.recall(s.half),
    "prepare": lambda s: s.producer.prepare(ORDERS, b"x"),
    "decide": lambda s: s.producer.decide(s.half, Decision.COMMIT),
    "prepare_now": lambda s: s.producer.prepare_now(ORDERS, b"x"),
    "commit": lambda s: s.producer.commit(s.half),
    "roll_back": lambda s: s.producer.roll_back(s.half),
    "transaction": lambda s: s.producer.transaction().__enter__(),
    "coordinated": lambda s: s.producer.coordinated("bank").__enter__(),
    "begin_flow": lambda s: s.producer.begin_flow(key="f"),
    "flow": lambda s: s.producer.flow("f"),
    "saga": lambda s: s.producer.saga().__enter__(),
    "recover": lambda s: s.producer.recover(),
    "send_message_in_transaction": lambda s: s.producer.send_message_in_transaction(
        Message(ORDERS, b"x"), executor=says(COMMIT)
    ),
    "join": lambda s: s.producer.join(create_engine("sqlite://").connect()),
}

OF_A_STREAM: Calls = {
    "poll": lambda s: s.stream.poll(),
    "commit": lambda s: s.stream.commit(s.batch),
    "seek": lambda s: s.stream.seek(s.batch.qid, 0),
    "bind": lambda s: s.stream.bind(s.block, s.batch),
}

OF_A_CONSUMER: Calls = {"receive": lambda s: s.consumer.receive(), "ack": lambda s: s.consumer.ack([s.message])}

OF_BLOCKS: Calls = {
    "transaction": lambda s: s.block.__enter__(),
    "coordinated": lambda s: s.coordinated.__enter__(),
    "saga": lambda s: s.saga.__enter__(),
    "coordinated in a loop": lambda s: asyncio.run(s.coordinated.__aenter__()),
}

CALLS = {
    "broker": OF_A_BROKER,
    "producer": OF_A_PRODUCER,
    "stream": OF_A_STREAM,
    "consumer": OF_A_CONSUMER,
    "block": OF_BLOCKS,
}
OPEN = {"kernel", "close", "claims", "messages", "batches", "read"}
"""The parts, closing itself, and what comes to its end with the broker."""


@pytest.mark.parametrize(
    ("kind", "calls"),
    [(Broker, OF_A_BROKER), (TransactionMQProducer, OF_A_PRODUCER), (Stream, OF_A_STREAM), (Consumer, OF_A_CONSUMER)],
)
def test_every_public_name_is_tried(kind: type, calls: Calls) -> None:
    public = {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}
    assert public - OPEN == calls.keys() - {"__enter__"}


def test_nothing_works_on_a_broker_that_is_closed(shop: Shop, engine_of: OpenEngine) -> None:
    scene = Scene(shop, engine_of("postgresql"))
    shop.broker.close()
    calls = {f"{of}.{name}": call for of, calls in CALLS.items() for name, call in calls.items()}
    assert {name: told(call, scene) for name, call in calls.items()} == dict.fromkeys(calls, True)


def told(call: Callable[[Scene], object], scene: Scene) -> object:
    """Tell whether a call says that the broker, or what it belongs to, is closed; else what it does."""
    try:
        return call(scene)
    except (BrokerClosed, LeaseLost):
        return True
    except Exception as other:  # noqa: BLE001  # told in the comparison
        return repr(other)


def test_a_closed_cluster_says_so(shop: Shop) -> None:
    cluster = txsaga.cluster({"policy": "random", "brokers": ["one"]}, {"one": shop.broker})
    producer = cluster.producer("press")
    cluster.close()
    calls: dict[str, Callable[[BrokerCluster], object]] = {
        "available": lambda c: c.available,
        "broker": lambda c: c.broker("one"),
        "producer": lambda c: c.producer("other"),
        "consumer": lambda c: c.consumer("workers", [NEWS]),
        "stream": lambda c: c.stream("readers", [NEWS]),
        "recover": lambda c: c.recover(),
        "scan": lambda c: c.scan(),
        "forget": lambda c: c.forget(),
        "reconnect": lambda c: c.reconnect(),
        "__enter__": lambda c: c.__enter__(),
        "send": lambda _: producer.send(NEWS, b"x"),
    }
    public = {name for name, _ in inspect.getmembers(BrokerCluster) if not name.startswith("_")}
    assert public - {"close", "failures"} == calls.keys() - {"__enter__", "send"}
    for call in calls.values():
        with pytest.raises(BrokerClosed, match="this cluster is closed"):
            call(cluster)


# What is under way


def books(shop: Shop, engine: Engine) -> Engine:
    with engine.begin() as connection:
        connection.execute(text("create table entry (id int primary key)"))
    shop.broker.register("books", engine)
    return engine


def enter(connection: Connection) -> None:
    connection.execute(text("insert into entry values (7)"))


def count(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.scalar(text("select count(*) from entry")))


def settled(home_url: str, shop: Shop, engine: Engine) -> list[str]:
    """Let another process settle what is left; return what is delivered then."""
    with txsaga.connect(home_url, roles=False, answering=False, resources={"books": engine}, env={}) as other:
        later = Shop(other, shop.later)
        later.check()
        return later.bodies()


@KEYS
@pytest.mark.rule("R14")
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_local_work_that_commits_after_the_broker_was_closed_is_not_said_to_be_undone(
    shop: Shop, home_url: str, engine_of: OpenEngine, key: str | None, kind: str
) -> None:
    engine = books(shop, engine_of(kind))
    with pytest.raises(OutcomeUnknown, match=OUTCOME), shop.producer().transaction(key=key) as tx:
        tx.send(ORDERS, b"a chair")
        with tx.local("books") as connection:
            enter(connection)
            shop.broker.close()
    assert count(engine) == 1
    assert settled(home_url, shop, engine) == ["a chair"]


@pytest.mark.rule("R14")
def test_a_call_that_finds_the_broker_closed_in_a_block_does_not_hide_that_its_work_is_done(
    shop: Shop, engine_of: OpenEngine
) -> None:
    engine, producer, plain = books(shop, engine_of("sqlite")), shop.producer(), shop.broker.producer("press")
    with pytest.raises(OutcomeUnknown, match=OUTCOME), producer.transaction() as tx:
        tx.send(ORDERS, b"a chair")
        with tx.local("books") as connection:
            enter(connection)
        shop.broker.close()
        plain.send(NEWS, b"x")
    assert count(engine) == 1


@pytest.mark.rule("R14")
def test_a_prepared_block_and_a_saga_whose_broker_is_closed_are_unknown(shop: Shop, engine_of: OpenEngine) -> None:
    engine, producer = books(shop, engine_of("sqlite")), shop.producer()
    saga, tx = producer.saga(), producer.transaction()
    with pytest.raises(OutcomeUnknown, match=OUTCOME), saga:
        saga.step("insert into entry values (7)", on="books", compensate="delete from entry")
        with pytest.raises(OutcomeUnknown, match=OUTCOME), tx:
            tx.send(ORDERS, b"a chair")
            tx.prepare()
            shop.broker.close()
    assert count(engine) == 1


OF_A_PREPARED_BLOCK: dict[str, Callable[[Producer, Transaction], object]] = {
    "id": lambda _, tx: tx.id,
    "send": lambda plain, _: plain.send(NEWS, b"x"),
}


@pytest.mark.rule("R14")
@pytest.mark.parametrize("looped", [False, True])
@pytest.mark.parametrize("used", OF_A_PREPARED_BLOCK)
def test_a_prepared_block_that_uses_its_closed_broker_is_unknown(
    shop: Shop, home_url: str, used: str, looped: bool
) -> None:
    plain, tx = shop.broker.producer("press"), shop.producer().transaction()

    def work() -> None:
        shop.broker.close()
        OF_A_PREPARED_BLOCK[used](plain, tx)

    async def within() -> None:
        async with tx as looped_tx:
            await looped_tx.send(ORDERS, b"a chair")
            await looped_tx.prepare()
            work()

    with pytest.raises(OutcomeUnknown, match=OUTCOME):
        if looped:
            asyncio.run(within())
        else:
            with tx:
                tx.send(ORDERS, b"a chair")
                tx.prepare()
                work()
    with txsaga.connect(home_url, roles=False, answering=False, env={}) as other:
        other.producer("shop", checker=says(COMMIT))
        later = Shop(other, shop.later)
        later.check()
        assert later.bodies() == ["a chair"]


def test_a_coordinated_block_and_its_votes_are_unknown(shop: Shop, home_url: str, engine_of: OpenEngine) -> None:
    engine = books(shop, engine_of("postgresql"))
    with pytest.raises(OutcomeUnknown, match=OUTCOME), shop.producer().coordinated("books", key="k") as tx:
        tx.send(ORDERS, b"a chair")
        with tx.on("books") as connection:
            enter(connection)
        shop.broker.close()
    assert settled(home_url, shop, engine) == []


def test_a_block_of_which_nothing_is_stored_is_refused_as_closed(shop: Shop, home_url: str) -> None:
    with pytest.raises(BrokerClosed), shop.producer().transaction() as tx:
        tx.send(ORDERS, b"a chair")
        shop.broker.close()
    with txsaga.connect(home_url, roles=False, env={}) as other:
        assert Shop(other, shop.later).listed() == []


def test_a_retry_that_finds_the_broker_closed_keeps_what_was_unknown() -> None:
    answers = iter([OutcomeUnknown("the connection broke at COMMIT"), BrokerClosed()])

    def step() -> None:
        raise next(answers)

    with pytest.raises(OutcomeUnknown, match="broke at COMMIT"):
        patiently(step, 5)


def test_local_work_that_closes_its_broker_still_has_a_result(moody_shop: Shop) -> None:
    def work(message: Message, arg: object) -> LocalState:
        moody_shop.broker.close()
        return COMMIT

    result = moody_shop.mq_producer().send_message_in_transaction(Message(ORDERS, b"a chair"), executor=work)
    assert (result.local_state, result.remark) == (COMMIT, "")
