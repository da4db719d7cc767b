"""What is killed: small programs as users write them, and what a fresh process does after the kill.

Each program runs in a child, alone, with its roles driven by hand, so that the same facts come in the same
order each time. Amounts are left out: one row in `debit` is one transfer, one message is one credit.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

from tests.chaos.world import BANK, World, database, debit
from txsaga.broker import Broker
from txsaga.checkback.by_hand import ByHand
from txsaga.checkback.checkers import Question
from txsaga.checkback.profile import CheckProfile
from txsaga.core.decision import Decision, LocalState
from txsaga.core.layout import Batch
from txsaga.core.message import TRANSACTION_ID, Message
from txsaga.errors import AlreadyCommitted, ConfigError
from txsaga.rocketmq import TransactionMQProducer

AT_ONCE = CheckProfile(interval=timedelta(0), min_age=timedelta(0), max_checks=3, reply_timeout=timedelta(seconds=30))
CREDITS = "credits"
ORDERS = "orders"
REMINDERS = "reminders"
CHATTER = "chatter"
PAST = "SELECT setval('{s}.tx_seq', greatest(last_value, 1000100)) FROM {s}.tx_seq"
"""No number is left in the first partition."""
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
ROUNDS = 60
HOLD = timedelta(seconds=0.5)
"""How long a member that is killed keeps its messages from the others."""


def nobody_knows(_: Question) -> LocalState:
    """Answer as a checker that is never needed: the evidence speaks."""
    return LocalState.UNKNOWN


def settle(broker: Broker, _: World) -> None:
    """Run the roles until everything that can be settled is settled and dispatched."""
    broker.create_topic("nudges", queues=1, retention=timedelta(0))
    # News make the next tick cover all numbers before them: the sweep looks no further than the ticks.
    broker.producer("nudger").send("nudges", b"")
    roles = [*broker.own_roles(), *broker.roles(AT_ONCE)]
    store = broker.kernel.store
    for _round in range(ROUNDS):
        if not sum(role.run_once() for role in roles) and not store.doubts.due(1) and not store.questions.backlog():
            return
    raise AssertionError(f"still in doubt after {ROUNDS} rounds")


def transfer(broker: Broker, world: World) -> None:
    """Move money twice, without a key."""
    broker.create_topic(CREDITS, "transaction", queues=2)
    producer = broker.producer("bank", checker=nobody_knows)
    for id in ("1", "2"):
        with producer.transaction() as tx:
            tx.send(CREDITS, id.encode(), key=id)
            with tx.local(BANK) as connection:
                debit(connection, id)
        world.note("acknowledged", id)
    settle(broker, world)


def send_without_checker(broker: Broker, world: World) -> None:
    """Send in a block without a key, and in one with a key; no checker could answer for them."""
    broker.create_topic(CREDITS, "transaction", queues=2)
    producer = broker.producer("silent")
    for id, key in (("1", None), ("2", "order-2")):
        world.note("tried", id)
        with producer.transaction(key=key) as tx:
            tx.send(CREDITS, id.encode(), key=id)
        world.note("acknowledged", id)
    settle(broker, world)


def keyed_transfer(broker: Broker, world: World) -> None:
    """Move money under a key, with a second message whose body is known late."""
    broker.create_topic(CREDITS, "transaction", queues=2)
    producer = broker.producer("bank", checker=nobody_knows)
    try:
        with producer.transaction(key="order-1") as tx:
            tx.send(CREDITS, b"1", key="1")
            slot = tx.later(CREDITS, key="1")
            with tx.local(BANK) as connection:
                debit(connection, "1")
                slot.fill(connection, b"1 receipt")
    except AlreadyCommitted:
        pass
    world.note("acknowledged", "1")
    settle(broker, world)


def place_orders(broker: Broker, world: World) -> None:
    """Fill the topic that is consumed."""
    broker.create_topic(ORDERS, queues=2)
    producer = broker.producer("shop")
    for id in ("1", "2", "3", "4"):
        producer.send(ORDERS, id.encode(), key=id)
    settle(broker, world)


def pass_on(broker: Broker, world: World) -> None:
    """Consume orders, book them, produce credits: each batch in one transaction."""
    _pass_on(broker, lambda _: None)
    settle(broker, world)


def pass_on_by_key(broker: Broker, world: World) -> None:
    """Do the same, each batch under a key."""
    _pass_on(broker, lambda batch: f"{batch.qid}/{batch.offset}")
    settle(broker, world)


def _pass_on(broker: Broker, key: Callable[[Batch], str | None]) -> None:
    broker.create_topic(CREDITS, "transaction", queues=2)
    producer = broker.producer("bank", checker=nobody_knows)
    stream = broker.stream("bank", [ORDERS], member="worker")
    for batch in stream.batches(wait=0):
        ids = [body.decode() for body in batch.bodies]
        with producer.transaction(key=key(batch)) as tx:
            tx.consume(stream, batch)
            tx.send_many(CREDITS, list(batch.bodies), keys=ids)
            with tx.local(BANK) as connection:
                for id in ids:
                    debit(connection, id)
    stream.close()


def booked(world: World) -> Callable[[Question], LocalState]:
    """Make a checker that looks for the booking of a half."""

    def check(question: Question) -> LocalState:
        with database(world.bank) as engine, engine.connect() as connection:
            found = connection.exec_driver_sql("SELECT 1 FROM debit WHERE half = %s", (question.id,)).first()
        return LocalState.COMMIT if found else LocalState.ROLLBACK

    return check


def book(message: Message, world: object) -> LocalState:
    """Book a message in a transaction of one's own; order 2 is not sure, order 3 fails."""
    assert isinstance(world, World) and message.headers and message.key
    if message.key == "3":
        raise ValueError("no such account")
    with database(world.bank) as engine, engine.begin() as connection:
        debit(connection, message.key, message.headers[TRANSACTION_ID])
    return LocalState.UNKNOWN if message.key == "2" else LocalState.COMMIT


def send_message_in_transaction(broker: Broker, world: World) -> None:
    """Send halves the RocketMQ way: one commits, one is left to the checker, one fails."""
    broker.create_topic(CREDITS, "transaction", queues=2)
    producer = TransactionMQProducer(broker, "bank", checker=booked(world), end_timeout=30)
    for id in ("1", "2", "3"):
        result = producer.send_message_in_transaction(Message(CREDITS, id.encode(), key=id), world, executor=book)
        if result.local_state is LocalState.COMMIT:
            world.note("acknowledged", id)
    settle(broker, world)


def send_and_read(broker: Broker, world: World) -> None:
    """Send plain messages and read them, the cursor moving behind what was read."""
    broker.create_topic(CREDITS, queues=2)
    producer = broker.producer("shop")
    for id in ("1", "2", "3", "4"):
        world.note("tried", id)
        producer.send(CREDITS, id.encode(), key=id)
        world.note("acknowledged", id)
    settle(broker, world)
    read(broker, world)


def send_for_later(broker: Broker, world: World) -> None:
    """Send messages that are due at once, and recall one before anybody commits it."""
    broker.create_topic(REMINDERS, "delay", queues=2)
    producer = broker.producer("calendar")
    for id in ("1", "2", "mistake"):
        world.note("tried", id)
        receipt = producer.send(REMINDERS, id.encode(), key=id, deliver_at=LONG_AGO)
        if id != "mistake":
            world.note("acknowledged", id)
    producer.recall(receipt)
    world.note("recalled", "mistake")
    settle(broker, world)


def come_due(broker: Broker, world: World) -> None:
    """Deliver what is due."""
    settle(broker, world)


def read(broker: Broker, world: World) -> None:
    """Read what is there."""
    settle(broker, world)
    broker.create_topic(CREDITS, queues=2)
    stream = broker.stream("readers", [CREDITS], member="reader")
    for message in stream.messages(wait=0):
        world.note("read", message.text())
    stream.close()


def replay(broker: Broker, world: World) -> None:
    """Fail in local work, plain and keyed; then do it by hand, once each, and replay the messages."""
    broker.create_topic(CREDITS, "transaction", queues=2)
    producer = broker.producer("bank", checker=nobody_knows)
    for id, key in (("1", None), ("2", "order-2")):
        with suppress(ValueError), producer.transaction(key=key) as tx:
            tx.send(CREDITS, id.encode(), key=id)
            with tx.local(BANK):
                world.note("failed", f"{id} {tx.txid}")
                raise ValueError("no such account")
    replay_by_hand(broker, world)


def replay_by_hand(broker: Broker, world: World) -> None:
    """Settle what is left, book what failed and is not booked, and replay it, as often as it takes."""
    settle(broker, world)
    for line in world.notes("failed"):
        id, txid = line.split()
        with database(world.bank) as engine, engine.begin() as connection:
            booked = connection.exec_driver_sql("SELECT FROM debit WHERE id = %s", (id,)).first() is not None
            if not booked:
                debit(connection, id)
        done = broker.replay(int(txid), who="anna", why="booked by hand")
        world.note("replayed", f"{txid} {done.replayed_as}")
        world.note("acknowledged", id)
    settle(broker, world)


def leave_in_doubt(broker: Broker, world: World) -> None:
    """Close transactions whose local work nobody can tell about: plain and keyed."""
    broker.create_topic(CREDITS, "transaction", queues=2)
    producer = broker.producer("secretive", checker=nobody_knows)
    producer.prepare_now(CREDITS, b"never")
    with producer.transaction(key="secret") as tx:
        tx.send(CREDITS, b"never either")
        tx.prepare()
        world.note("closed", str(tx.txid))
        # Undecided for good: this process ends here as if it had been killed.
        raise SystemExit(0)


def resume(broker: Broker, world: World) -> None:
    """Have parked transactions asked about again, by somebody who has found the books of the secretive."""
    broker.producer("bank", checker=nobody_knows)
    broker.producer("secretive", checker=lambda _: LocalState.COMMIT)
    for view in broker.kernel.store.overview.transactions(undecided=True, limit=100):
        if view.state == "parked":
            ByHand(broker.kernel).resume(view.txid, who="anna", why="the books were found")
    settle(broker, world)


def decide_by_hand(broker: Broker, world: World) -> None:
    """Settle what is parked: a person knows."""
    for view in broker.kernel.store.overview.transactions(undecided=True, limit=100):
        if view.state == "parked":
            ByHand(broker.kernel).decide(view.txid, Decision.COMMIT, who="anna", why="asked the bank")
    settle(broker, world)


def chat(broker: Broker, world: World) -> None:
    """Send what nobody keeps into the partition of what is parked."""
    broker.create_topic(CHATTER, queues=2, retention=timedelta(0))
    producer = broker.producer("chatter")
    for _ in range(40):
        producer.send(CHATTER, b"hello")
    settle(broker, world)


def make_room(broker: Broker, world: World) -> None:
    """Drop the partition of what is parked, then settle that by hand: it was copied out."""
    with database(world.home_database) as engine, engine.begin() as connection:
        connection.exec_driver_sql(PAST.format(s=world.name))
    settle(broker, world)
    decide_by_hand(broker, world)


def work_for_long(broker: Broker, world: World) -> None:
    """Move money in blocks that take so long that their leases are renewed, and one that is then left."""
    broker.create_topic(CREDITS, "transaction", queues=2)
    producer = broker.producer("bank", checker=nobody_knows)
    heartbeat, _ = broker.own_roles()
    with patch("txsaga.checkback.work_in_progress.TYPICAL", 0.0):
        for id, key in (("1", None), ("2", "long-2")):
            with suppress(AlreadyCommitted), producer.transaction(key=key) as tx:
                tx.send(CREDITS, id.encode(), key=id)
                if key is not None:
                    tx.join_life()
                heartbeat.run_once()
                with tx.local(BANK) as connection:
                    debit(connection, id)
                    heartbeat.run_once()
                heartbeat.run_once()
    settle(broker, world)


def check_back(broker: Broker, world: World) -> None:
    """Settle what dead processes left, as the only one who can answer for them."""
    broker.producer("bank", checker=booked(world))
    broker.producer("secretive", checker=nobody_knows)
    settle(broker, world)


def work_off(broker: Broker, world: World) -> None:
    """Work orders off: acknowledged one by one and together, put back, buried, consumed, replayed."""
    broker.create_group("workers", max_attempts=2, first_retry=timedelta(0))
    _work_off(broker, world)


def work_off_in_order(broker: Broker, world: World) -> None:
    """Do the same in the order of keys."""
    broker.create_group("workers", max_attempts=2, first_retry=timedelta(0), ordered=True)
    _work_off(broker, world)


def _work_off(broker: Broker, world: World) -> None:
    _work(broker, world, refused="3", idle=0.3)
    letters = broker.dead_letters.list("workers")
    broker.dead_letters.replay([letter.id for letter in letters])
    _work(broker, world, refused="", idle=0.3)
    settle(broker, world)


def work_on(broker: Broker, world: World) -> None:
    """Finish what dead members left: their open transactions first, then every message that is still there."""
    with database(world.home_database) as engine, engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE {world.name}.tx SET touched = now() - interval '2 hours'")
    settle(broker, world)
    with suppress(ConfigError):  # it keeps order, and stays as it is
        broker.create_group("workers", max_attempts=2, first_retry=timedelta(0))
    _work(broker, world, refused="", idle=1.0)
    letters = broker.dead_letters.list("workers")
    broker.dead_letters.replay([letter.id for letter in letters])
    _work(broker, world, refused="", idle=1.0)
    broker.dead_letters.purge([letter.id for letter in letters])
    settle(broker, world)


def _work(broker: Broker, world: World, *, refused: str, idle: float) -> None:
    broker.create_topic(CREDITS, "transaction", queues=2)
    producer = broker.producer("bank", checker=nobody_knows)
    consumer = broker.consumer("workers", [ORDERS], member="worker", batch=2, invisible=HOLD)
    for message in consumer.messages(wait=idle):
        id = message.text()
        if id == "4":
            with message, producer.transaction() as tx:
                tx.consume(message)
                tx.send(CREDITS, b"4", key="4")
                with tx.local(BANK) as connection:
                    debit(connection, "4")
        elif id == "2":
            message.extend()
            world.note("worked", id)
            consumer.ack([message])
        else:
            with message:
                if id == refused:
                    raise ValueError("no such account")
                world.note("worked", id)
    for message in consumer.receive():
        message.extend()
    consumer.close()
