"""A half at rest: where it lies, what it carries, and that settling changes nothing of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
import pytest
from sqlalchemy import event

from tests.scene.shop import NEWS, ORDERS, Shop, order
from tests.scene.stored import Stored
from txsaga import COMMIT, Decision, LocalState, Message
from txsaga.core.decision import ReplyCode
from txsaga.core.identity import HalfId
from txsaga.core.topic import HALF_TOPIC

pytestmark = pytest.mark.core

BOTH = list(Decision)


@pytest.mark.req("RMQ-03", "RMQ-20")
@pytest.mark.conf("BRK-07", "BRK-20")
def test_an_acknowledged_half_waits_and_its_producer_goes_on(shop: Shop) -> None:
    producer = shop.producer()
    first, second = producer.prepare_now(ORDERS, b"1"), producer.prepare_now(ORDERS, b"2")
    assert (first.code, second.code) == (ReplyCode.SEND_OK, ReplyCode.SEND_OK)
    assert [shop.state(half.txid) for half in (first, second)] == ["prepared", "prepared"]
    assert shop.bodies() == []


@pytest.mark.req("RMQ-03")
@pytest.mark.conf("BRK-21", "BRK-27", "BRK-28", "BRK-46")
def test_each_half_of_a_batch_gets_its_own_answer(shop: Shop) -> None:
    """The answers are futures here; each belongs to the message that it was asked for."""
    producer = shop.producer()
    asked = [producer.prepare(ORDERS, str(n).encode(), key="one queue") for n in range(50)]
    for pending in asked:
        producer.commit(pending.result(10))
    assert [message.text() for message in shop.read()] == [str(n) for n in range(50)]
    assert {pending.result().code for pending in asked} == {ReplyCode.SEND_OK}


@pytest.mark.req("RMQ-16", "RMQ-34")
@pytest.mark.conf("BRK-20", "BRK-43")
def test_a_half_lies_under_the_half_topic_and_remembers_where_it_goes(shop: Shop) -> None:
    """A half moved to another store would take these marks along; that there is no such move changes nothing."""
    producer = shop.producer()
    receipts = {n: producer.prepare_now(ORDERS, b"", key=str(n)) for n in range(20)}
    receipt = next(r for r in receipts.values() if shop.view(r.txid).real_queue == 3)
    view = shop.view(receipt.txid)
    assert (view.topic, view.queue, view.flag) == (HALF_TOPIC, 0, "NOT")
    assert (view.real_topic, view.real_queue) == (ORDERS, 3)
    assert (view.prepared, view.group, view.count) == (True, "shop", 1)


@pytest.mark.req("RMQ-13", "RMQ-19", "RMQ-20", "RMQ-21")
@pytest.mark.conf("BRK-19", "BRK-13")
@pytest.mark.parametrize("decision", BOTH)
def test_a_decision_is_a_row_of_its_own_there_when_it_is_answered(
    shop: Shop, stored: Stored, decision: Decision
) -> None:
    """An op is never buffered: what was acknowledged is in the table, and the half is as it was on disk."""
    producer = shop.producer()
    receipt = producer.prepare_now(ORDERS, b"a chair")
    before = stored.half(receipt.txid)
    assert stored.rows("SELECT * FROM op") == []
    producer.decide(receipt, decision).result(10)
    assert stored.rows("SELECT txid, decision FROM op") == [(receipt.txid, int(decision))]
    shop.deliver()
    assert stored.half(receipt.txid) == before


@pytest.mark.req("RMQ-22")
def test_an_op_points_to_its_half_by_the_transaction_id_alone(shop: Shop, stored: Stored) -> None:
    producer = shop.producer()
    for text in (b"1", b"2", b"3"):
        producer.roll_back(producer.prepare_now(ORDERS, text))
    keys = stored.rows("SELECT column_name FROM information_schema.columns WHERE table_schema = :s"
                       " AND table_name = 'op' ORDER BY 1", s=stored.namespace)  # fmt: skip
    assert [name for (name,) in keys] == ["decision", "from_check", "keyed", "txid", "xid"]
    joined = "SELECT count(*), count(DISTINCT h.txid) FROM op o JOIN half h USING (txid)"
    assert stored.rows(joined) == [(3, 3)]


@pytest.mark.req("RMQ-19", "RMQ-06")
def test_a_rolled_back_half_is_still_there_and_marked(shop: Shop, stored: Stored) -> None:
    producer = shop.producer()
    receipt = producer.prepare_now(ORDERS, b"a chair")
    producer.roll_back(receipt)
    shop.deliver()
    assert stored.value("SELECT count(*) FROM half WHERE txid = :t", t=receipt.txid) == 1
    assert (shop.view(receipt.txid).flag, shop.state(receipt.txid)) == ("ROLLBACK", "rolled_back")


@pytest.mark.req("RMQ-55", "RMQ-16")
def test_a_committed_message_is_linked_to_its_half_and_keeps_its_time(shop: Shop) -> None:
    producer = shop.producer()
    receipt = producer.prepare_now(ORDERS, b"a chair")
    born = shop.view(receipt.txid).born
    producer.commit(receipt)
    (message,) = shop.read()
    view = shop.view(receipt.txid)
    assert (view.flag, view.prepared, view.topic) == ("COMMIT", False, ORDERS)
    assert view.queue == view.real_queue == message.queue
    assert message.id == view.id
    assert HalfId.decode(message.id).txid == receipt.txid
    assert message.born == view.born == born


@pytest.mark.req("RMQ-32", "RMQ-72")
@pytest.mark.parametrize("setting", ["delay", "deliver_at"])
def test_the_delay_of_a_half_is_dropped_with_a_warning(
    shop: Shop, caplog: pytest.LogCaptureFixture, setting: str
) -> None:
    times: dict[str, Any] = {"delay": timedelta(days=3), "deliver_at": pendulum.now("UTC").add(days=3)}
    message = order("late", **{setting: times[setting]}, key="42", tag="red", headers={"a": "b"})
    seen: list[Message] = []

    def local(message: Message, _: object) -> LocalState:
        seen.append(message)
        return COMMIT

    shop.mq_producer().send_message_in_transaction(message, executor=local)
    assert [each.scheduled for each in seen] == [False]
    with shop.producer().transaction() as tx:
        tx.send(message)
    warnings = [r for r in caplog.records if "a half message has no delay" in r.message]
    assert [(r.levelname, ORDERS in r.message) for r in warnings] == [("WARNING", True)] * 2
    found = [(m.text(), m.key, m.tag, m.headers) for m in shop.read()]
    assert found == [("late", "42", "red", {"a": "b"})] * 2


@pytest.mark.conf("BRK-31", "BRK-32", "BRK-33", "BRK-08")
def test_a_half_is_found_by_its_number_or_not_at_all(shop: Shop) -> None:
    receipt = shop.producer().prepare_now(ORDERS, b"a chair")
    assert HalfId.decode(shop.view(receipt.txid).id).txid == receipt.txid
    assert shop.store.halves.views(receipt.txid + 1) == []
    assert shop.store.overview.transaction(receipt.txid + 1) is None


@pytest.mark.conf("BRK-25", "BRK-26", "BRK-14")
def test_a_store_that_was_just_opened_is_empty(shop: Shop) -> None:
    assert list(shop.listed()) == []
    assert shop.store.halves.views(1) == []
    assert list(shop.store.doubts.due(10)) == []
    assert shop.read(ORDERS, NEWS) == []
    assert shop.check() == 0


@pytest.mark.conf("BRK-30")
def test_a_check_without_an_answer_leaves_the_half_as_old_as_it_is(shop: Shop, stored: Stored) -> None:
    """A check counts beside the half and never renews it, so the time of birth cannot change."""
    asked: list[object] = []
    receipt = shop.producer(checker=asked.append).prepare_now(ORDERS, b"a chair")
    shop.check()
    before = stored.half(receipt.txid)
    for _ in range(3):
        assert shop.store.doubts.due(10)
        assert shop.round() == 0
    assert len(asked) == 4
    assert stored.half(receipt.txid) == before


def test_a_look_at_a_half_leaves_its_body_where_it_lies(shop: Shop) -> None:
    receipt = shop.producer().prepare_now(ORDERS, b"a chair")
    asked: list[str] = []
    event.listen(shop.store.engine, "before_cursor_execute", lambda *seen: asked.append(seen[2]))
    shop.view(receipt.txid)
    (question,) = [sql for sql in asked if not sql.startswith("SET LOCAL")]
    assert "body" not in question
