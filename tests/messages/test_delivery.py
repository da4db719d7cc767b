"""What a commit brings about, and that nothing else does: the message as its producer built it, in its log."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.scene.shop import NEWS, ORDERS, Shop, order, says
from tests.scene.stored import Stored
from txsaga import COMMIT, ROLLBACK, UNKNOWN, Decision
from txsaga.core.identity import HalfId
from txsaga.core.message import TRANSACTION_ID
from txsaga.core.records import LogEntry


@pytest.mark.req("RMQ-05")
@pytest.mark.conf("BRK-01")
def test_the_commit_brings_about_the_index_entry(shop: Shop, stored: Stored) -> None:
    """There are no counters yet; what they count is here: one decision, one more message in its queue."""
    producer = shop.producer()
    receipt = producer.prepare_now(ORDERS, b"a chair", key="42")
    queue = stored.value("SELECT qid FROM half")
    shop.deliver()
    assert stored.rows("SELECT * FROM log") == []
    producer.commit(receipt)
    shop.deliver()
    assert stored.rows("SELECT qid, base, n, txid FROM log") == [(queue, 0, 1, receipt.txid)]
    assert stored.rows("SELECT sum(head - tail) FROM queue") == [(1,)]
    assert shop.bodies() == ["a chair"]


@pytest.mark.req("RMQ-06", "RMQ-56")
@pytest.mark.conf("BRK-09")
def test_nobody_ever_gets_a_rolled_back_message(shop: Shop) -> None:
    producer = shop.producer(checker=says(COMMIT))
    receipt = producer.prepare_now(ORDERS, b"a chair")
    assert producer.roll_back(receipt).decision is Decision.ROLLBACK
    assert shop.bodies() == []
    for _ in range(16):  # one more than the checks there are
        shop.check()
    assert shop.bodies() == []
    assert (shop.state(receipt.txid), shop.pending()) == ("rolled_back", [])


@pytest.mark.req("RMQ-23", "RMQ-55")
def test_a_committed_message_is_the_one_that_was_sent(shop: Shop) -> None:
    producer = shop.mq_producer()
    sent = order(
        "ein Stuhl für 10 €",
        key="42",
        tag="red",
        headers={"a": "1", "ä": "€"},
        ordering_key="k",
        persistent=False,
    )
    result = producer.send_message_in_transaction(sent, executor=says(COMMIT))
    (got,) = shop.read()
    for name in ("topic", "body", "key", "tag", "headers", "ordering_key", "persistent", "unique_key"):
        assert getattr(got, name) == getattr(sent, name), name
    assert (got.queue, got.id, got.tx_id) == (result.queue, result.message_id, result.transaction_id)


@pytest.mark.req("RMQ-23")
def test_a_half_and_a_plain_message_take_the_same_path(shop: Shop) -> None:
    shop.broker.create_topic("ordered", "fifo", queues=1)
    producer = shop.producer()
    producer.send("ordered", b"a chair", key="42", tag="red", ordering_key="k")
    producer.commit(producer.prepare_now("ordered", b"a chair", key="42", tag="red", ordering_key="k"))
    plain, committed = shop.read("ordered")
    assert (plain.offset, committed.offset) == (0, 1)
    for name in ("topic", "queue", "body", "key", "tag", "headers", "ordering_key"):
        assert getattr(plain, name) == getattr(committed, name)


class Reads:
    """A log that writes down how it is read."""

    def __init__(self, shop: Shop) -> None:
        self._log = shop.store.log
        self.asked: list[tuple[int, int]] = []

    def fetch(self, qid: int, offset: int, limit: int, end: int = 2**62) -> Sequence[LogEntry]:
        self.asked.append((qid, offset))
        return self._log.fetch(qid, offset, limit, end)

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)


@pytest.mark.req("RMQ-18")
def test_a_consumer_reads_by_queue_and_offset_alone(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    producer, reads = shop.producer(), Reads(shop)
    for n in range(40):
        receipt = producer.prepare_now(ORDERS, str(n).encode())
        producer.decide(receipt, Decision.COMMIT if n % 8 < 4 else Decision.ROLLBACK).result(10)
    monkeypatch.setattr(shop.store, "log", reads)
    monkeypatch.setattr(shop.store.halves, "views", None)  # no reader may ask for stored halves
    assert len(shop.read()) == 20
    qids = shop.store.registry.topic(ORDERS).qids
    assert {qid for qid, _ in reads.asked} == set(qids)
    assert sorted(offset for _, offset in reads.asked) == [0] * 4 + [5] * 4


@pytest.mark.req("RMQ-18")
def test_that_read_goes_through_the_index_and_never_over_the_halves(shop: Shop, stored: Stored) -> None:
    fetch = shop.store.log._hot.fetch
    sql = fetch.sql.replace("$1", "1").replace("$2", "0").replace("$3", "16").replace("$4", "99")
    plan = stored.plan(sql)
    assert "using log_pkey" in plan
    assert "Index Scan using half_" in plan and "Seq Scan" not in plan


@pytest.mark.conf("INT-02")
def test_all_sixteen_committed_messages_arrive(shop: Shop) -> None:
    producer = shop.mq_producer()
    for n in range(16):
        producer.send_message_in_transaction(order(str(n)), executor=says(COMMIT))
    assert sorted(shop.bodies(), key=int) == [str(n) for n in range(16)]


@pytest.mark.req("RMQ-15", "RMQ-06")
def test_of_many_messages_the_committed_ones_arrive_and_no_other(shop: Shop) -> None:
    producer = shop.mq_producer(checker=says(UNKNOWN))
    for n in range(30):
        producer.send_message_in_transaction(order(str(n)), executor=says((COMMIT, ROLLBACK, UNKNOWN)[n % 3]))
    assert sorted(shop.bodies(), key=int) == [str(n) for n in range(0, 30, 3)]
    assert len(shop.pending()) == 10


@pytest.mark.conf("RC-N1")
@pytest.mark.req("RMQ-37")
def test_the_consumer_sees_the_transaction_id_of_the_receipt(shop: Shop) -> None:
    result = shop.mq_producer().send_message_in_transaction(order(headers={"a": "b"}), executor=says(COMMIT))
    (message,) = shop.read()
    assert message.properties == {"a": "b", TRANSACTION_ID: result.transaction_id}
    assert HalfId.decode(message.id).transaction == result.transaction_id


def test_a_plain_send_is_delivered_without_a_decision_of_its_producer(shop: Shop) -> None:
    shop.broker.producer("press").send(NEWS, b"fresh chairs")
    assert shop.bodies(NEWS) == ["fresh chairs"]


def test_who_can_not_be_told_of_a_decision_doubles_nothing(moody_shop: Shop) -> None:
    def unable() -> None:
        raise RuntimeError("can't start new thread")

    producer = moody_shop.broker.producer("till")  # plain
    moody_shop.broker.kernel.when_decided(unable)
    for pending in [producer.submit(NEWS, b"%d" % n) for n in range(3)]:
        pending.result(10)
    assert sorted(moody_shop.bodies(NEWS)) == ["0", "1", "2"]
