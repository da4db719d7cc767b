"""What the store answers to a half, and an end that fails or is late: the caller always gets a result."""

from __future__ import annotations

import time

import pytest

from tests.scene.fake_store import FakeHalves
from tests.scene.shop import ORDERS, Shop, order, says
from txsaga import COMMIT, ROLLBACK, UNKNOWN, LocalState, Message
from txsaga.core.decision import NOT_SAFE, Decision, ReplyCode
from txsaga.errors import (
    EndRefused,
    NotPrimary,
    SendFailed,
    StoreBusy,
    StoreError,
    StoreUnavailable,
    TransactionsRejected,
)
from txsaga.rocketmq import EndRequest

OTHERS = sorted(set(ReplyCode) - NOT_SAFE - {ReplyCode.SEND_OK})


@pytest.mark.req("RMQ-42", "RMQ-36")
@pytest.mark.parametrize("status", sorted(NOT_SAFE))
def test_a_half_in_doubt_is_rolled_back_and_no_local_work_runs(
    moody_shop: Shop, halves: FakeHalves, status: ReplyCode
) -> None:
    assert {"FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"} == NOT_SAFE
    ran: list[object] = []
    halves.status = status
    result = moody_shop.mq_producer().send_message_in_transaction(order(), executor=lambda *_: ran.append(1))
    assert (result.status, result.local_state, ran) == (status, ROLLBACK, [])
    assert [end.decision for end in halves.ends] == [Decision.ROLLBACK]
    assert moody_shop.state(result.queue_offset) == "rolled_back"
    assert moody_shop.bodies() == []


@pytest.mark.req("RMQ-43", "RMQ-36", "RMQ-44")
@pytest.mark.conf("BRK-27")
@pytest.mark.parametrize("status", OTHERS)
def test_any_other_status_leaves_the_half_to_the_check(moody_shop: Shop, halves: FakeHalves, status: ReplyCode) -> None:
    """The answer of the store is passed through as it is."""
    ran: list[object] = []
    ends: list[EndRequest] = []
    halves.status = status
    producer = moody_shop.mq_producer(end_hooks=[ends.append])
    result = producer.send_message_in_transaction(order(), executor=lambda *_: ran.append(1))
    assert (result.status, result.local_state, ran) == (status, UNKNOWN, [])
    assert ([end.state for end in ends], halves.ends) == ([UNKNOWN], [])
    assert moody_shop.state(result.queue_offset) == "prepared"


@pytest.mark.req("RMQ-42", "RMQ-43", "RMQ-02")
@pytest.mark.parametrize("status", [*sorted(NOT_SAFE), *OTHERS])
def test_a_block_begins_no_local_work_behind_such_a_half(
    moody_shop: Shop, halves: FakeHalves, status: ReplyCode
) -> None:
    halves.status = status
    ran = False
    with pytest.raises(SendFailed, match=status), moody_shop.producer().transaction() as tx:
        tx.send(order())
        tx.prepare()
        ran = True
    (view,) = moody_shop.listed()
    assert (view.state, ran) == ("rolled_back" if status in NOT_SAFE else "prepared", False)


FAILURES: dict[str, tuple[Exception, str, bool]] = {
    "network": (StoreUnavailable("the home database did not answer: reset by peer"), "SERVICE_NOT_AVAILABLE", True),
    "disk": (StoreError("the disk of the home database is full"), "SYSTEM_ERROR", False),
    "standby": (NotPrimary("this server is a standby"), "SLAVE_NOT_AVAILABLE", False),
    "busy": (StoreBusy("20000 calls wait already"), "SYSTEM_ERROR", True),
    "rejected": (TransactionsRejected("s"), "NO_PERMISSION", False),
    "driver": (OSError("broken pipe"), "SYSTEM_ERROR", False),
}  # fmt: skip


@pytest.mark.req("RMQ-35", "RMQ-04")
@pytest.mark.parametrize(("failure", "code", "retryable"), FAILURES.values(), ids=FAILURES)
def test_a_failing_prepare_is_wrapped_and_nothing_follows(
    moody_shop: Shop, halves: FakeHalves, failure: Exception, code: str, retryable: bool
) -> None:
    ran: list[object] = []
    producer = moody_shop.mq_producer(end_hooks=[ran.append])
    halves.refused.append(failure)
    with pytest.raises(SendFailed, match="send message Exception: ") as raised:
        producer.send_message_in_transaction(order(), executor=lambda *_: ran.append(1))
    assert raised.value.__cause__ is failure
    assert (raised.value.code, raised.value.retryable) == (code, retryable)
    assert (ran, halves.ends, list(moody_shop.listed())) == ([], [], [])
    assert moody_shop.bodies() == []


@pytest.mark.req("RMQ-04", "RMQ-35")
def test_a_block_whose_half_is_not_stored_begins_no_local_work(moody_shop: Shop, halves: FakeHalves) -> None:
    ran = False
    halves.refused.append(StoreUnavailable("the home database did not answer"))
    with pytest.raises(StoreUnavailable), moody_shop.producer().transaction() as tx:
        tx.send(ORDERS, b"a chair")
        tx.prepare()
        ran = True
    assert (ran, halves.ends, list(moody_shop.listed())) == (False, [], [])


ENDS: dict[str, Exception] = {
    "network": StoreUnavailable("reset by peer"),
    "refused": EndRefused("SYSTEM_ERROR", "no"),
    "driver": OSError("broken pipe"),
}


@pytest.mark.req("RMQ-44")
@pytest.mark.parametrize("failure", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("state", [COMMIT, ROLLBACK])
def test_a_failing_end_is_a_warning_and_the_check_settles_it(
    moody_shop: Shop,
    halves: FakeHalves,
    caplog: pytest.LogCaptureFixture,
    failure: Exception,
    state: LocalState,
) -> None:
    halves.broken.append(failure)
    producer = moody_shop.mq_producer(checker=says(state))
    result = producer.send_message_in_transaction(order(), executor=says(state))
    assert (result.status, result.local_state) == (ReplyCode.SEND_OK, state)
    warnings = [r for r in caplog.records if r.levelname == "WARNING" and str(failure) in r.message]
    assert [result.message_id in r.message for r in warnings] == [True]
    assert moody_shop.state(result.queue_offset) == "prepared"
    assert moody_shop.check() == 1
    assert moody_shop.bodies() == (["a chair"] if state is COMMIT else [])


@pytest.mark.req("RMQ-49")
@pytest.mark.conf("CLI-04")
def test_an_end_that_is_late_counts_as_sent(
    moody_shop: Shop, halves: FakeHalves, caplog: pytest.LogCaptureFixture
) -> None:
    producer = moody_shop.mq_producer(end_timeout=0.2)
    halves.open.clear()
    start = time.monotonic()
    result = producer.send_message_in_transaction(order(), executor=says(COMMIT))
    assert 0.2 <= time.monotonic() - start < 2
    assert (result.status, result.local_state) == (ReplyCode.SEND_OK, COMMIT)
    assert moody_shop.state(result.queue_offset) == "prepared"
    assert [r.levelname for r in caplog.records if "its reply is late" in r.message] == ["WARNING"]
    halves.open.set()
    producer.prepare_now(ORDERS, b"behind it")  # what was sent is done all the same
    assert moody_shop.state(result.queue_offset) == "committed"


@pytest.mark.req("RMQ-44")
def test_a_caller_learns_from_the_log_that_another_decision_stands(
    moody_shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    producer = moody_shop.mq_producer(checker=says(ROLLBACK))

    def slow(message: Message, arg: object) -> LocalState:
        moody_shop.check()
        return COMMIT

    result = producer.send_message_in_transaction(order(), executor=slow)
    assert moody_shop.state(result.queue_offset) == "rolled_back"
    assert any("COMMIT was requested, but the decision is ROLLBACK" in r.message for r in caplog.records)
