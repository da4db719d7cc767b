"""End hooks hear of every end of their producer before it is written, and whether a check made it."""

from __future__ import annotations

import pytest

from tests.scene.shop import NEWS, ORDERS, Shop, order, says
from txsaga import COMMIT, ROLLBACK, UNKNOWN, LocalState
from txsaga.rocketmq import EndRequest


@pytest.mark.req("RMQ-50", "RMQ-47")
@pytest.mark.conf("CLI-07")
def test_a_hook_sees_a_direct_end(shop: Shop) -> None:
    ends: list[EndRequest] = []
    producer = shop.mq_producer(end_hooks=[ends.append])
    result = producer.send_message_in_transaction(order("a table", key="42"), executor=says(COMMIT))
    (end,) = ends
    assert (end.group, end.message_id, end.transaction_id) == (
        "shop",
        result.message_id,
        result.transaction_id,
    )
    assert (end.from_check, end.state, end.topic) == (False, COMMIT, ORDERS)
    assert end.message is not None
    assert (end.message.body, end.message.topic) == (b"a table", ORDERS)


@pytest.mark.req("RMQ-50")
@pytest.mark.parametrize("answer", [COMMIT, ROLLBACK, UNKNOWN])
def test_a_hook_sees_the_end_that_a_check_makes(shop: Shop, answer: LocalState) -> None:
    ends: list[EndRequest] = []
    producer = shop.mq_producer(checker=says(answer), end_hooks=[ends.append])
    result = producer.send_message_in_transaction(order(), executor=says(UNKNOWN))
    shop.check()
    direct, checked = ends
    assert (direct.from_check, direct.state) == (False, UNKNOWN)
    assert (checked.from_check, checked.state) == (True, answer)
    for name in ("message_id", "transaction_id", "broker", "group", "commit_log_offset", "topic", "token"):
        assert getattr(checked, name) == getattr(direct, name), name
    assert checked.remark == ""
    assert shop.transaction(result.queue_offset).from_check is (answer is not UNKNOWN)


@pytest.mark.req("RMQ-50")
def test_a_hook_sees_why_a_check_has_no_answer(shop: Shop) -> None:
    def jammed(_: object) -> LocalState:
        raise OSError("the till is jammed")

    ends: list[EndRequest] = []
    shop.mq_producer(checker=jammed, end_hooks=[ends.append]).send_message_in_transaction(order(), executor=says(None))
    shop.check()
    assert [(end.state, end.from_check, end.remark) for end in ends] == [
        (UNKNOWN, False, ""),
        (UNKNOWN, True, "OSError: the till is jammed"),
    ]


@pytest.mark.req("RMQ-50")
def test_a_hook_hears_its_own_producer_only(shop: Shop) -> None:
    ends: list[EndRequest] = []
    shop.mq_producer("bank", end_hooks=[ends.append])
    shop.mq_producer("shop").send_message_in_transaction(order(), executor=says(UNKNOWN))
    shop.broker.producer("press").send(NEWS, b"fresh chairs")
    shop.check()
    assert ends == []


@pytest.mark.req("RMQ-50", "RMQ-44")
def test_a_failing_hook_is_logged_and_fails_no_end(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    ends: list[EndRequest] = []

    def broken(end: EndRequest) -> None:
        raise OSError("the tracer is gone")

    producer = shop.mq_producer(end_hooks=[broken, ends.append])
    result = producer.send_message_in_transaction(order(), executor=says(COMMIT))
    producer.send_message_in_transaction(order(), executor=says(UNKNOWN))
    assert shop.check() == 1
    assert (shop.state(result.queue_offset), len(ends)) == ("committed", 3)
    failed = [r for r in caplog.records if "an end hook failed" in r.message]
    assert len(failed) == 3
    assert result.transaction_id in failed[0].message
