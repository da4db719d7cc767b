"""A topic that one process deletes while another one has it cached: nothing is lost, and nothing comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from threading import Barrier

import pytest
from sqlalchemy import text

import txsaga
from tests.contracts.apart import apart
from tests.contracts.samples import start
from tests.messages.test_topics import WAYS, Way, in_a_keyed_block, plainly
from tests.scene.shop import Shop
from tests.scene.stored import Stored
from txsaga.broker import Broker
from txsaga.core.decision import Decision
from txsaga.core.message import Message
from txsaga.core.topic import TopicChanges
from txsaga.errors import (
    ConfigError,
    GroupKindMismatch,
    StoreUnavailable,
    TopicInUse,
    TopicNotRead,
    TopicTypeMismatch,
    TransactionError,
    UnknownGroup,
    UnknownTopic,
)
from txsaga.flows.actions import compensation
from txsaga.messages.producer import Producer
from txsaga.store.partitions import SPAN, Partitions

TYPES: dict[Way, str] = {plainly: "normal"}
GONE, KEYS = "gone", count()
UNDONE: list[str] = []


@compensation("deleted-topics-fly-back")
def fly_back(flight: str) -> None:
    UNDONE.append(flight)


@pytest.fixture
def other(shop: Shop, home_url: str) -> Iterator[Broker]:
    """Give the broker of another process: the shop's broker learns nothing of what it does to topics."""
    with txsaga.connect(home_url, roles=False, answering=False, env={}) as broker:
        yield apart(broker)


def in_a_block_with_a_new_key(shop: Shop, producer: Producer, topic: str) -> object:
    with producer.transaction(key=f"order-{next(KEYS)}") as tx:
        tx.send(topic, b"a chair")
    return tx.decision


def halves_in(stored: Stored, name: str) -> list[tuple[int, bool]]:
    """Return the halves of the topics of a name, deleted ones included, and whether each is decided."""
    return [
        (txid, decided)
        for txid, decided in stored.rows(
            "SELECT h.txid, EXISTS (SELECT FROM op o WHERE o.txid = h.txid) FROM half h JOIN queue q USING (qid) "
            "JOIN topic t ON t.id = q.topic WHERE split_part(t.name, '~', 1) = :name ORDER BY h.txid",
            name=name,
        )
    ]


@pytest.mark.parametrize("way", [*(way for way in WAYS if way is not in_a_keyed_block), in_a_block_with_a_new_key])
def test_a_process_that_has_it_cached_is_refused_until_there_is_a_new_one(
    shop: Shop, other: Broker, stored: Stored, way: Way
) -> None:
    shop.broker.create_topic(GONE, TYPES.get(way, "transaction"))
    producer = shop.mq_producer()
    way(shop, producer, GONE)
    for txid in shop.pending():
        with shop.store.ledgers.open() as ledger:
            assert ledger.write_op(txid, Decision.COMMIT, from_check=False, keyed=False)
    before = halves_in(stored, GONE)
    other.delete_topic(GONE)
    for why in ("was deleted", "does not exist"):
        with pytest.raises(UnknownTopic, match=f"topic 'gone' {why}"):
            way(shop, producer, GONE)
    assert halves_in(stored, GONE) == before
    other.create_topic(GONE, TYPES.get(way, "transaction"))
    way(shop, producer, GONE)
    assert len(halves_in(stored, GONE)) == len(before) + 1


def test_a_partition_that_is_added_later_takes_nothing_either(shop: Shop, other: Broker, stored: Stored) -> None:
    shop.broker.create_topic(GONE)
    producer = shop.producer()
    producer.send(GONE, b"a")
    other.delete_topic(GONE)
    assert Partitions(shop.store.engine, shop.store.namespace).extend(3 * SPAN) > 1
    stored.rows("SELECT setval('tx_seq', :last)", last=2 * SPAN + 1)
    with pytest.raises(UnknownTopic):
        producer.send(GONE, b"b")
    producer.send("news", b"c")


def test_a_reader_of_messages_delays_no_deletion(shop: Shop, other: Broker) -> None:
    shop.broker.create_topic(GONE)
    shop.producer().send(GONE, b"a")
    with shop.store.engine.begin() as connection:
        connection.execute(text(f'SELECT count(*) FROM "{shop.store.namespace}".half'))
        other.delete_topic(GONE)


def test_other_messages_of_a_batch_are_sent(shop: Shop, other: Broker) -> None:
    shop.broker.create_topic(GONE)
    producer = shop.producer()
    producer.send(GONE, b"a")
    halves = [producer._plain(Message(topic, b"b")) for topic in ("news", GONE, "news", GONE, "news")]
    other.delete_topic(GONE)
    sent = [shop.broker.kernel.stores.submit(half) for half in halves]
    outcomes = [type(future.exception()) for future in sent]
    assert [outcome is UnknownTopic for outcome in outcomes] == [False, True, False, True, False]
    assert shop.bodies("news") == ["b", "b", "b"]


def test_a_block_that_sent_before_is_rolled_back_as_a_whole(shop: Shop, other: Broker) -> None:
    shop.broker.create_topic(GONE, "transaction")
    with pytest.raises(UnknownTopic), shop.producer().transaction() as tx:
        tx.send("orders", b"a")
        tx.send(GONE, b"b")
        other.delete_topic(GONE)
    assert shop.bodies("orders") == []
    assert shop.pending() == []


def test_a_late_body_is_neither_lost_nor_in_the_way(shop: Shop, other: Broker) -> None:
    shop.broker.create_topic(GONE, "transaction")
    producer = shop.producer()
    with producer.transaction() as tx:
        tx.send(GONE, b"a")
    with pytest.raises(TopicInUse, match="undecided"), producer.transaction() as tx:
        tx.later(GONE)
        other.delete_topic(GONE)
    other.delete_topic(GONE)
    with pytest.raises(UnknownTopic), producer.transaction() as tx:
        tx.later(GONE)
    assert shop.pending() == []


def test_a_saga_that_sends_to_it_is_undone(shop: Shop, other: Broker) -> None:
    shop.broker.create_topic(GONE, "transaction")
    with pytest.raises(UnknownTopic), shop.broker.saga("booking") as saga:
        saga.send(GONE, b"a")
        saga.step(lambda flight: None, compensate=fly_back, input={"flight": "to Oslo"})
        other.delete_topic(GONE)
    assert UNDONE == ["to Oslo"]
    assert shop.pending() == []


def test_a_refused_join_ends_the_callers_transaction(shop: Shop, other: Broker) -> None:
    shop.broker.create_topic(GONE)
    producer = shop.producer()
    with shop.store.engine.begin() as connection:
        producer.join(connection).send(GONE, b"a")
    other.delete_topic(GONE)
    with pytest.raises(UnknownTopic), shop.store.engine.begin() as connection:
        producer.join(connection).send("news", b"b")
        producer.join(connection).send(GONE, b"c")
    with shop.store.engine.begin() as connection:
        with pytest.raises(UnknownTopic):
            producer.join(connection).send_many(GONE, [b"d"])
        producer.join(connection).send("news", b"e")
    assert shop.bodies("news") == ["e"]


def test_a_transaction_that_sees_the_store_as_it_was_is_refused(shop: Shop, other: Broker) -> None:
    shop.broker.create_topic(GONE)
    producer = shop.producer()
    engine = shop.store.engine.execution_options(isolation_level="REPEATABLE READ")
    with engine.begin() as connection:
        producer.join(connection).send(GONE, b"a")
    with pytest.raises(UnknownTopic), engine.begin() as connection:
        connection.execute(text("SELECT 1"))
        other.delete_topic(GONE)
        producer.join(connection).send(GONE, b"b")


def test_an_open_transaction_that_has_sent_delays_the_deletion(shop: Shop, other: Broker) -> None:
    shop.broker.create_topic(GONE)
    producer = shop.producer()
    with shop.store.engine.begin() as connection:
        producer.join(connection).send(GONE, b"a")
        with pytest.raises(StoreUnavailable, match="lock"):
            other.delete_topic(GONE)
    other.delete_topic(GONE)


@pytest.mark.parametrize("prepares", [True, False], ids=["prepare", "send"])
def test_a_racing_send_is_before_the_deletion_or_refused(
    shop: Shop, other: Broker, stored: Stored, prepares: bool
) -> None:
    producer = shop.producer()
    send: Callable[[str], object] = (
        (lambda name: producer.prepare_now(name, b"a")) if prepares else (lambda name: producer.send(name, b"a"))
    )
    for turn in range(12):
        name, both = f"{GONE}-{turn}", Barrier(2)
        shop.broker.create_topic(name, "transaction" if prepares else "normal", queues=1)

        def until_it_is_gone(name: str = name, both: Barrier = both, most: int = turn % 4) -> int:
            sent = 0
            try:
                both.wait()
                for _ in range(most if prepares else 10_000):
                    send(name)
                    sent += 1
            except UnknownTopic:
                pass
            return sent

        sending = start(until_it_is_gone)
        both.wait()
        try:
            other.delete_topic(name)
            deleted = True
        except TopicInUse:
            deleted = False
        sent = sending.result(30)
        stored_then = halves_in(stored, name)
        assert len(stored_then) == sent
        assert not deleted or all(decided for _, decided in stored_then)


def test_a_replay_does_not_bring_a_deleted_topic_back(shop: Shop, other: Broker) -> None:
    shop.broker.create_topic(GONE, "transaction")
    producer = shop.producer()
    receipt = producer.prepare_now(GONE, b"a")
    producer.roll_back(receipt)
    other.delete_topic(GONE)
    with pytest.raises(TransactionError, match="deleted"):
        shop.broker.replay(receipt.txid, why="again")
    assert shop.pending() == []


def test_a_deleted_topic_is_neither_listed_nor_cut(shop: Shop, other: Broker) -> None:
    shop.broker.create_topic(GONE)
    shop.producer().send(GONE, b"a")
    shop.deliver()
    other.delete_topic(GONE)
    assert GONE not in {topic.name for topic in shop.broker.topics}
    assert {topic.name for topic in shop.broker.topics} == {"orders", "news"}
    with shop.broker.cut() as cut:
        assert set(cut.heads) == {"orders", "news"}


def test_a_backout_topic_stays(shop: Shop, other: Broker) -> None:
    shop.broker.create_topic(GONE)
    shop.broker.create_group("billing", backout=GONE)
    for needless in (lambda: other.delete_topic(GONE), lambda: other.alter_topic(GONE, type="fifo")):
        with pytest.raises(TopicInUse, match="backout topic of group billing"):
            needless()
    shop.broker.alter_group("billing", backout=None)
    other.delete_topic(GONE)


def test_what_says_to_do_is_done(shop: Shop, other: Broker) -> None:
    shop.broker.create_topic(GONE)
    shop.producer().send(GONE, b"a")
    shop.deliver()
    with closing(shop.broker.stream("billing", [GONE])) as stream:
        stream.poll()
        with pytest.raises(TopicInUse, match=r"read by group billing; .*txsaga group leave GROUP --topic gone"):
            other.delete_topic(GONE)
    shop.broker.leave_topic("billing", GONE, dry_run=False)
    other.delete_topic(GONE)
    with pytest.raises(UnknownTopic):
        shop.broker.stream("billing", [GONE])


def test_a_message_without_an_offset_keeps_the_type(shop: Shop, other: Broker) -> None:
    shop.broker.create_topic(GONE)
    shop.producer().send(GONE, b"a")
    with pytest.raises(TopicInUse, match=r"has messages \(1\)"):
        other.alter_topic(GONE, type="transaction")
    assert shop.bodies(GONE) == ["a"]


def test_a_type_changes_while_it_is_empty(shop: Shop, other: Broker) -> None:
    shop.broker.create_topic(GONE)
    producer = shop.producer()
    producer.send(GONE, b"a")
    shop.deliver()
    with pytest.raises(TopicInUse, match=r"has messages \(1\); drop them with `txsaga topic purge gone"):
        other.alter_topic(GONE, type="transaction")
    assert other.purge_topic(GONE) == 1
    assert other.alter_topic(GONE, type="transaction").type == "transaction"
    with pytest.raises(UnknownTopic, match="'gone' was deleted, or replaced by one of another type: send again"):
        producer.send(GONE, b"b")
    with pytest.raises(TopicTypeMismatch):
        producer.send(GONE, b"b")
    shop.producer().prepare_now(GONE, b"c")
    with pytest.raises(ConfigError, match="is none of"):
        other.alter_topic(GONE, type="loud")


def test_a_new_topic_makes_nobody_look_again(shop: Shop) -> None:
    before = TopicChanges.count
    shop.broker.create_topic(GONE)
    assert TopicChanges.count == before
    shop.broker.delete_topic(GONE)
    assert TopicChanges.count > before


def test_a_process_that_knows_another_type_looks_again(shop: Shop, other: Broker) -> None:
    shop.broker.create_topic(GONE, "fifo")
    producer = shop.producer()
    producer.send(Message(GONE, b"a", ordering_key="k"))
    shop.deliver()
    other.purge_topic(GONE)
    other.alter_topic(GONE, type="normal")
    producer.send(GONE, b"b")
    assert shop.bodies(GONE) == ["b"]


def test_a_member_notices_that_its_group_is_gone_or_reads_otherwise(shop: Shop, other: Broker) -> None:
    shop.producer().send("news", b"a")
    shop.deliver()
    consumer = shop.broker.consumer("billing", ["news"])
    other.leave_topic("billing", "news", dry_run=False)
    assert consumer.receive() == []
    consumer._policy_until = 0.0
    with pytest.raises(TopicNotRead, match="does not read topic 'news'"):
        consumer.receive()
    other.delete_group("billing")
    told = pytest.raises(GroupKindMismatch, match="`txsaga group delete billing --yes`")
    with closing(other.stream("billing", ["news"])), told:
        consumer.receive()
    other.delete_group("billing")
    for refused in (lambda: consumer.receive(), lambda: other.delete_group("billing")):
        with pytest.raises(UnknownGroup):
            refused()
    assert stored_cursors(shop) == 0


def stored_cursors(shop: Shop) -> int:
    with shop.store.engine.begin() as connection:
        namespace = shop.store.namespace
        return int(connection.execute(text(f'SELECT count(*) FROM "{namespace}".cursor')).scalar_one())
