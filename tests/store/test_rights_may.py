"""What each right lets a login do, by the public API: all of its own work, and nothing more is needed."""

# Fixtures are named where they are asked for.
# ruff: noqa: F811

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import timedelta

import pytest
from sqlalchemy import NullPool, create_engine, text

from tests.scene.stored import Stored
from tests.store.logins import Logins
from tests.store.opened_as import (  # noqa: F401  # fixtures
    Open,
    engine,
    everything,
    made,
    open_as,
    operator,
    read,
    run_roles,
)
from tests.store.tables import VIEWS
from txsaga.broker import Broker
from txsaga.checkback.by_hand import ByHand
from txsaga.checkback.checkers import Question
from txsaga.checkback.heartbeat import Heartbeat
from txsaga.core.clock import wall_clock
from txsaga.core.decision import Decision, LocalState
from txsaga.errors import AlreadyCommitted, DecidedOtherwise, GroupInUse
from txsaga.messages.halves_store import HalfStore
from txsaga.store.connection import parse_url
from txsaga.store.right import Right
from txsaga.store.statement import StatementCall

pytestmark = pytest.mark.postgres


class TestProducer:
    @pytest.fixture
    def producing(self, operator: Broker, open_as: Open) -> Broker:
        return open_as(Right.PRODUCER)

    @pytest.fixture
    def delivered(self, engine: Broker, open_as: Open) -> Callable[..., Sequence[bytes]]:
        consumer = open_as(Right.CONSUMER)

        def read_all(topic: str) -> Sequence[bytes]:
            run_roles(engine)
            return sorted(read(consumer, topic))

        return read_all

    def test_sends_plain_messages_one_and_many(
        self, producing: Broker, delivered: Callable[..., Sequence[bytes]]
    ) -> None:
        producer = producing.producer("plain")
        producer.send("news", b"a")
        producer.send_many("news", [b"b", b"c"])
        for pending in [producer.submit("news", b"%d" % n) for n in range(50)]:
            pending.result()
        assert delivered("news") == sorted([b"a", b"b", b"c", *(b"%d" % n for n in range(50))])

    @pytest.mark.req("RMQ-09")
    def test_answers_for_its_group_and_reads_what_it_is_asked_about(
        self, home_url: str, producing: Broker, engine: Broker, delivered: Callable[..., Sequence[bytes]]
    ) -> None:
        heard: list[list[bytes]] = []

        def answer(question: Question) -> LocalState:
            heard.append([message.body for message in question.messages])
            return LocalState.COMMIT

        producer = producing.producer("shop", checker=answer)
        producer.prepare_now("orders", b"a")
        tx = producer.transaction(key="order-1").__enter__()
        tx.send("orders", b"b")
        tx.prepare()
        _, answering = producing.own_roles()
        for _ in range(3):
            run_roles(engine)
            Stored(home_url).let_pass(3600)
            Heartbeat(producing.kernel).enlist()
        run_roles(engine)
        while answering.run_once():
            pass
        assert sorted(heard) == [[b"a"], [b"b"]]
        assert delivered("orders") == [b"a", b"b"]

    def test_prepares_halves_and_decides_them_alone_and_many_at_once(
        self, producing: Broker, delivered: Callable[..., Sequence[bytes]]
    ) -> None:
        producer = producing.producer("shop", checker=lambda _: None)
        producer.commit(producer.prepare_now("orders", b"yes"))
        producer.roll_back(producer.prepare_now("orders", b"no"))
        receipts = [pending.result() for pending in [producer.prepare("orders", b"%d" % n) for n in range(50)]]
        for pending in [producer.decide(receipt, Decision.COMMIT) for receipt in receipts]:
            pending.result()
        with pytest.raises(DecidedOtherwise):
            producer.roll_back(receipts[0])
        assert delivered("orders") == sorted([b"yes", *(b"%d" % n for n in range(50))])

    def test_sends_for_later_and_recalls(self, producing: Broker, delivered: Callable[..., Sequence[bytes]]) -> None:
        producer = producing.producer("plain")
        producer.send("later", b"now", delay=timedelta(milliseconds=1))
        producer.recall(producer.send("later", b"never", delay=timedelta(hours=1)))
        assert delivered("later") == [b"now"]

    def test_runs_a_keyed_transaction_with_local_work_and_enters_the_key_again(
        self, producing: Broker, delivered: Callable[..., Sequence[bytes]], foreign_databases: Callable[[], str]
    ) -> None:
        books = create_engine(foreign_databases(), poolclass=NullPool)
        producing.register("books", books)
        producer = producing.producer("shop", checker=lambda _: None)
        with pytest.raises(ZeroDivisionError), producer.transaction(key="order-1") as tx:
            tx.send("orders", b"failed")
            tx.prepare()
            raise ZeroDivisionError
        with producer.transaction(key="order-2") as tx:
            tx.send("orders", b"order 2")
            with tx.local("books") as connection:
                connection.execute(text("CREATE TABLE entry (id int)"))
        with pytest.raises(AlreadyCommitted), producer.transaction(key="order-2"):
            pass
        assert delivered("orders") == [b"order 2"]

    def test_fills_a_late_body(
        self, producing: Broker, delivered: Callable[..., Sequence[bytes]], foreign_databases: Callable[[], str]
    ) -> None:
        producing.register("books", create_engine(foreign_databases(), poolclass=NullPool))
        with producing.producer("shop", checker=lambda _: None).transaction(key="order-1") as tx:
            slot = tx.later("orders")
            with tx.local("books") as connection:
                slot.fill(connection, b"late")
        assert delivered("orders") == [b"late"]

    def test_sends_in_its_own_transaction(
        self, made: Logins, operator: Broker, open_as: Open, delivered: Callable[..., Sequence[bytes]]
    ) -> None:
        url = made.url_with(Right.PRODUCER)
        producer = open_as(url=url).producer("shop")
        mine = create_engine(parse_url(url)[0], poolclass=NullPool)
        with mine.connect() as connection:
            producer.join(connection).send("news", b"no")
            connection.rollback()
            joined = producer.join(connection)
            joined.send("news", b"one")
            joined.send_many("news", [b"two", b"three"])
            assert connection.execute(text("SHOW synchronous_commit")).scalar_one() == "on"
            connection.commit()
        assert delivered("news") == [b"one", b"three", b"two"]

    def test_a_batch_whose_answer_was_lost_is_found(self, producing: Broker) -> None:
        producer = producing.producer("shop", checker=lambda _: None)
        receipt = producer.prepare_now("orders", b"a")
        halves = producing.kernel.store.halves
        assert isinstance(halves, HalfStore)
        look = halves._hot.batch.sql.replace("$1", "0").replace("batch = $2", "batch <> 0")
        (((txid, token),),) = halves._lines.exchange([StatementCall(look)])
        assert (txid, token) == (receipt.txid, receipt.token)

    def test_consumes_transforms_and_produces_with_the_consumer_right(
        self, operator: Broker, engine: Broker, open_as: Open
    ) -> None:
        both = open_as(Right.PRODUCER, Right.CONSUMER)
        both.producer("plain").send("news", b"in")
        run_roles(engine)
        producer = both.producer("shop", checker=lambda _: None)
        with closing(both.stream("transform", ["news"])) as stream:
            batch = stream.poll()
            assert batch is not None
            with producer.transaction(key="batch-1") as tx:
                tx.consume(stream, batch)
                tx.send("orders", b"out")
        run_roles(engine)
        assert read(both, "orders") == [b"out"]


class TestConsumer:
    @pytest.fixture
    def consumer(self, made: Logins, operator: Broker, engine: Broker, open_as: Open) -> Broker:
        producer = open_as(Right.PRODUCER).producer("plain")
        for n in range(3):
            producer.send("news", b"%d" % n)
        run_roles(engine)
        return open_as(Right.CONSUMER)

    def test_reads_a_stream_and_goes_on_where_it_was(self, consumer: Broker) -> None:
        with closing(consumer.stream("readers", ["news"])) as stream:
            batches = list(stream.batches(wait=0))
            stream.commit(batches[-1])
        assert [body for batch in batches for body in batch.bodies] == [b"0", b"1", b"2"]
        assert read(consumer, "news") == []

    def test_reads_from_a_moment_on(self, consumer: Broker) -> None:
        moment = wall_clock() - timedelta(hours=1)
        with closing(consumer.stream("readers", ["news"], start=moment)) as stream:
            assert len(list(stream.messages(wait=0))) == 3

    def test_reads_the_views_of_cuts(self, consumer: Broker) -> None:
        store = consumer.kernel.store
        with store.engine.connect() as connection:
            for view in VIEWS:
                assert connection.exec_driver_sql(f'SELECT * FROM "{store.namespace}".{view}').all() == []

    def test_works_messages_off_puts_them_back_and_buries_them(self, operator: Broker, consumer: Broker) -> None:
        operator.create_group("workers", max_attempts=1)
        with consumer.consumer("workers", ["news"]) as workers:
            one, two, three = everything(workers)
            one.ack()
            two.nack("broken")
            three.nack("broken")
        assert [letter.history[-1]["cause"] for letter in operator.dead_letters.list()] == ["broken"] * 2

    def test_what_fails_to_the_end_goes_to_the_backout_topic(
        self, operator: Broker, engine: Broker, consumer: Broker
    ) -> None:
        operator.create_topic("backout", queues=1)
        operator.create_group("workers", max_attempts=1, backout="backout")
        with consumer.consumer("workers", ["news"]) as workers:
            for message in everything(workers):
                message.nack("broken")
        run_roles(engine)
        assert len(read(consumer, "backout")) == 3

    def test_keeps_the_order_of_keys(self, operator: Broker, consumer: Broker) -> None:
        operator.create_group("in-order", ordered=True)
        with consumer.consumer("in-order", ["news"]) as workers:
            for message in workers.receive():
                message.extend(timedelta(seconds=60))
                message.ack()

    def test_waits_for_a_tick(self, consumer: Broker) -> None:
        assert consumer.kernel.store.log.wait(0)


class TestOperator:
    def test_keeps_topics_and_groups(self, operator: Broker) -> None:
        operator.alter_topic("news", retention=timedelta(days=1))
        operator.create_group("workers", backout="news")
        operator.alter_group("workers", max_attempts=3, backout=None)
        operator.reject_transactions(True)
        operator.reject_transactions(False)

    def test_changes_the_kind_of_a_producer_group(self, operator: Broker, open_as: Open) -> None:
        with open_as(Right.PRODUCER).producer("plain").transaction(key="order-1") as tx:
            tx.send("orders", b"a")
            with pytest.raises(GroupInUse, match=f"has transaction {tx.txid}, "):
                operator.set_kind("plain", "transactional")
        assert operator.set_kind("plain", "transactional").kind == "transactional"

    def test_replays_and_purges_dead_letters_and_resets_groups(
        self, operator: Broker, engine: Broker, open_as: Open
    ) -> None:
        open_as(Right.PRODUCER).producer("plain").send_many("news", [b"a", b"b", b"c"])
        operator.create_group("workers", max_attempts=1)
        run_roles(engine)
        with open_as(Right.CONSUMER).consumer("workers", ["news"]) as workers:
            for message in everything(workers):
                message.nack("broken")
        one, two, _ = operator.dead_letters.list()
        assert operator.dead_letters.replay([one.id]) == 1
        assert operator.dead_letters.purge([two.id]) == 1
        assert operator.reset_group("workers", "earliest", dry_run=False)

    @pytest.mark.parametrize("decision", list(Decision))
    def test_decides_halves_and_keyed_transactions_by_hand_and_leaves_a_record(
        self, operator: Broker, open_as: Open, decision: Decision
    ) -> None:
        producer = open_as(Right.PRODUCER).producer("shop", checker=lambda _: None)
        receipt = producer.prepare_now("orders", b"a")
        keyed = producer.transaction(key="order-1")
        if decision is Decision.ROLLBACK:  # nobody commits what is open
            keyed.__enter__().prepare()
        by_hand = ByHand(operator.kernel)
        for txid in [receipt.txid] + ([keyed.txid] if keyed.txid else []):
            standing = by_hand.decide(txid, decision, who="anna", why="the shop is closed")
            assert (standing.decision, standing.won) == (decision, True)
            (audited,) = operator.kernel.store.overview.history(txid)
            assert (audited.who, audited.login) == ("anna", operator.kernel.store.engine.url.username)

    def test_looks_at_everything(self, operator: Broker, open_as: Open) -> None:
        producer = open_as(Right.PRODUCER).producer("shop", checker=lambda _: None)
        receipt = producer.prepare_now("orders", b"a")
        store = operator.kernel.store
        assert store.overview.undecided().count == 1
        assert store.overview.dispatch().tick == 0
        assert [view.txid for view in store.overview.transactions(undecided=True, limit=10)] == [receipt.txid]
        assert [view.prepared for view in store.halves.views(receipt.txid)] == [True]
        assert (store.overview.readings(), store.overview.dead_letters(), store.groups.all()) == ([], {}, [])
