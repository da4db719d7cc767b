"""`send_message_in_transaction`: the half first, then local work, then the end; what local work says is what counts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import fields

import pytest

from tests.scene.shop import ORDERS, Answer, Shop, order, says
from txsaga import COMMIT, ROLLBACK, UNKNOWN, LocalState, Message
from txsaga.core.decision import ReplyCode
from txsaga.core.identity import HalfId
from txsaga.core.message import TRANSACTION_ID
from txsaga.errors import CheckerMissing, ConfigError, ExecutorMissing, InvalidMessage
from txsaga.rocketmq import EndRequest, SendResult, TransactionMQProducer


def breaks(*_: object) -> LocalState:
    raise OSError("the till is jammed")


@pytest.mark.req("RMQ-02")
def test_the_order_is_prepare_then_local_work_then_end(shop: Shop) -> None:
    steps: list[str] = []

    def local(message: Message, arg: object) -> LocalState:
        (view,) = shop.listed()
        steps.append(f"local work sees {view.state}, {shop.view(view.txid).flag}")
        return COMMIT

    producer = shop.mq_producer(end_hooks=[lambda end: steps.append(f"end {end.state}")])
    result = producer.send_message_in_transaction(order(), executor=local)
    steps.append(shop.state(result.queue_offset))
    assert steps == ["local work sees prepared, NOT", "end COMMIT", "committed"]


@pytest.mark.req("RMQ-36", "RMQ-45")
def test_local_work_is_called_once_with_the_message_and_the_users_argument(shop: Shop) -> None:
    calls: list[tuple[str, object]] = []
    argument = object()

    def local(message: Message, arg: object) -> LocalState:
        calls.append((message.body.decode(), arg))
        return COMMIT

    result = shop.mq_producer().send_message_in_transaction(order("a table"), argument, executor=local)
    assert calls == [("a table", argument)]
    assert (result.status, result.local_state) == (ReplyCode.SEND_OK, COMMIT)


STATES: dict[str, tuple[Answer, LocalState, str]] = {
    "commit": (says(COMMIT), COMMIT, "committed"),
    "rollback": (says(ROLLBACK), ROLLBACK, "rolled_back"),
    "unknown": (says(UNKNOWN), UNKNOWN, "prepared"),
    "nothing": (says(None), UNKNOWN, "prepared"),
    "an exception": (breaks, UNKNOWN, "prepared"),
    "no state": (lambda *_: "maybe", UNKNOWN, "prepared"),  # type: ignore[dict-item]
}


@pytest.mark.req("RMQ-15", "RMQ-39", "RMQ-40", "RMQ-44", "RMQ-45")
@pytest.mark.parametrize(("local", "said", "stands"), STATES.values(), ids=STATES)
def test_what_local_work_says_decides(shop: Shop, local: Answer, said: LocalState, stands: str) -> None:
    ends: list[EndRequest] = []
    asked: list[object] = []

    def checker(question: object) -> LocalState:
        asked.append(question)
        return COMMIT

    producer = shop.mq_producer(checker=checker, end_hooks=[ends.append])
    result = producer.send_message_in_transaction(order("a table"), executor=local)
    assert result.local_state is said
    assert [end.state for end in ends] == [said]
    assert shop.state(result.queue_offset) == stands
    shop.check()  # a half that nobody decided is asked about later
    assert len(asked) == (1 if stands == "prepared" else 0)
    assert shop.bodies() == ([] if said is ROLLBACK else ["a table"])


@pytest.mark.req("RMQ-40")
def test_the_text_of_an_exception_is_kept_for_the_end(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    ends: list[EndRequest] = []
    result = shop.mq_producer(end_hooks=[ends.append]).send_message_in_transaction(order(), executor=breaks)
    assert result.remark == "OSError: the till is jammed"
    assert [(end.state, end.remark) for end in ends] == [(UNKNOWN, result.remark)]
    (record,) = [r for r in caplog.records if r.exc_info]
    assert result.message_id in record.message


@pytest.mark.req("RMQ-45")
@pytest.mark.conf("SCH-01")
@pytest.mark.parametrize("local", [says(COMMIT), says(ROLLBACK), breaks])
def test_a_result_tells_all_six(shop: Shop, local: Answer) -> None:
    result = shop.mq_producer().send_message_in_transaction(order(key="42"), executor=local)
    half = HalfId.decode(result.message_id)
    view = shop.view(half.txid)
    assert (result.status, result.queue) == (ReplyCode.SEND_OK, view.real_queue)
    assert (result.message_id, result.queue_offset) == (view.id, half.txid)
    assert result.transaction_id == half.transaction
    assert result.local_state in LocalState
    names = [field.name for field in fields(SendResult)]
    assert names == "status queue message_id queue_offset transaction_id local_state remark".split()


@pytest.mark.req("RMQ-41")
@pytest.mark.parametrize(("state", "level"), [(ROLLBACK, "INFO"), (UNKNOWN, "INFO"), (COMMIT, None)])
def test_an_answer_of_local_work_that_is_no_commit_is_logged(
    shop: Shop, caplog: pytest.LogCaptureFixture, state: LocalState, level: str | None
) -> None:
    with caplog.at_level(logging.DEBUG, logger="txsaga"):
        result = shop.mq_producer().send_message_in_transaction(order(), executor=says(state))
    lines = [(r.levelname, str(state) in r.message) for r in caplog.records if result.message_id in r.message]
    assert lines == ([(level, True)] if level else [])


@pytest.mark.req("RMQ-41")
@pytest.mark.parametrize("state", [ROLLBACK, UNKNOWN, COMMIT])
def test_an_answer_of_a_check_that_is_no_commit_is_a_warning(
    shop: Shop, caplog: pytest.LogCaptureFixture, state: LocalState
) -> None:
    result = shop.mq_producer(checker=says(state)).send_message_in_transaction(order(), executor=says(UNKNOWN))
    caplog.clear()
    shop.check()
    lines = [(r.levelname, str(state) in r.message) for r in caplog.records if result.message_id in r.message]
    assert lines == ([] if state is COMMIT else [("WARNING", True)])


@pytest.mark.req("RMQ-37")
@pytest.mark.parametrize("unique_key", [None, "", "order-42"])
def test_the_transaction_id_is_the_unique_key_else_the_stores(shop: Shop, unique_key: str | None) -> None:
    seen: list[Message] = []
    producer = shop.mq_producer(checker=says(COMMIT))
    result = producer.send_message_in_transaction(
        order(unique_key=unique_key), executor=lambda message, _: seen.append(message)
    )
    store_id = HalfId.decode(result.message_id).transaction
    assert [message.tx_id for message in seen] == [unique_key or store_id]
    assert [(message.headers or {})[TRANSACTION_ID] for message in seen] == [store_id]
    assert result.transaction_id == (unique_key or store_id)
    shop.check()
    (delivered,) = shop.read()
    assert (delivered.tx_id, delivered.properties[TRANSACTION_ID]) == (unique_key or store_id, store_id)


@pytest.mark.req("RMQ-37")
@pytest.mark.parametrize("unique_key", [None, "order-42"])
def test_a_store_without_an_id_leaves_the_property_out(unique_key: str | None) -> None:
    message = order(unique_key=unique_key, headers={"a": "b"})
    assert message.stored_in("") is message
    assert message.tx_id == unique_key


@pytest.mark.req("RMQ-31")
def test_without_local_work_nothing_is_sent(shop: Shop) -> None:
    with pytest.raises(ExecutorMissing, match=r"tranExecutor is null.*executor=") as raised:
        shop.mq_producer().send_message_in_transaction(order())
    assert isinstance(raised.value, ConfigError)
    assert list(shop.listed()) == []


@pytest.mark.req("RMQ-31", "RMQ-68")
@pytest.mark.conf("CLI-01", "RC-J9", "RC-C9")
def test_without_listener_and_checker_there_is_no_producer(shop: Shop) -> None:
    with pytest.raises(ExecutorMissing, match=r"tranExecutor is null: .*'silent' .* a listener"):
        TransactionMQProducer(shop.broker, "silent")
    assert shop.store.registry.find_group("silent") is None


@pytest.mark.req("RMQ-31")
@pytest.mark.parametrize("way", ["prepare", "prepare_now", "tx.prepare"])
def test_without_a_checker_no_half_is_stored_that_only_a_checker_could_settle(shop: Shop, way: str) -> None:
    producer = shop.broker.producer("silent")

    def block() -> None:
        with producer.transaction() as tx:
            tx.send(ORDERS, b"")
            tx.prepare()

    calls: dict[str, Callable[[], object]] = {
        "prepare": lambda: producer.prepare(ORDERS, b""),
        "prepare_now": lambda: producer.prepare_now(ORDERS, b""),
        "tx.prepare": block,
    }
    with pytest.raises(CheckerMissing, match="'silent' has no checker; pass checker="):
        calls[way]()
    assert list(shop.listed()) == []


@pytest.mark.req("RMQ-72")
def test_several_messages_are_no_half(shop: Shop) -> None:
    producer = shop.mq_producer()
    batch = [order("1"), order("2")]
    attempts: list[Callable[[], object]] = [
        lambda: producer.send_message_in_transaction(batch, executor=says(COMMIT)),  # type: ignore[arg-type]
        lambda: producer.prepare(batch),  # type: ignore[arg-type]
        lambda: producer.transaction().send(batch),  # type: ignore[arg-type]
    ]
    for attempt in attempts:
        with pytest.raises(InvalidMessage, match="send takes one message, not a list") as raised:
            attempt()
        assert raised.value.code == "MESSAGE_ILLEGAL"
    assert list(shop.listed()) == []
    with producer.transaction() as tx:
        for message in batch:
            tx.send(message)
    assert sorted(shop.bodies()) == ["1", "2"]
