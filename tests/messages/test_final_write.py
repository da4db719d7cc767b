"""The final write of a decision: what its answers mean, and that a repeated call decides once."""

from __future__ import annotations

import pytest

from tests.scene.fake_store import FakeHalves
from tests.scene.shop import ORDERS, Shop, order, says
from txsaga import COMMIT, UNKNOWN, Decision
from txsaga.core.decision import NOT_SAFE, ReplyCode
from txsaga.errors import InvalidMessage, NotPrimary, StoreError, StoreUnavailable, TxSagaError


@pytest.mark.req("RMQ-89")
@pytest.mark.parametrize("code", sorted(NOT_SAFE))
def test_a_doubt_about_the_final_write_is_success(moody_shop: Shop, halves: FakeHalves, code: ReplyCode) -> None:
    producer = moody_shop.mq_producer(checker=says(COMMIT))
    halves.end_code = code
    receipt = producer.prepare_now(ORDERS, b"a chair")
    assert producer.commit(receipt).code is ReplyCode.SUCCESS
    result = producer.send_message_in_transaction(order("a table"), executor=says(COMMIT))
    checked = producer.send_message_in_transaction(order("a lamp"), executor=says(UNKNOWN))
    assert moody_shop.check() == 1
    for txid in (receipt.txid, result.queue_offset, checked.queue_offset):
        assert moody_shop.state(txid) == "committed"
    assert sorted(moody_shop.bodies()) == ["a chair", "a lamp", "a table"]


FAILURES: dict[str, tuple[TxSagaError, str]] = {
    "illegal": (
        InvalidMessage("the body has 5,000,000 bytes; at most 4,194,304 are stored"),
        "MESSAGE_ILLEGAL",
    ),
    "service down": (StoreUnavailable("the home database did not answer"), "SERVICE_NOT_AVAILABLE"),
    "disk full": (StoreError("the disk of the home database is full"), "SYSTEM_ERROR"),
    "standby": (NotPrimary("this server is a standby"), "SLAVE_NOT_AVAILABLE"),
}


@pytest.mark.req("RMQ-90", "RMQ-54")
@pytest.mark.conf("RC-G5")
@pytest.mark.parametrize("decision", Decision)
@pytest.mark.parametrize(("failure", "code"), FAILURES.values(), ids=FAILURES)
def test_an_error_of_the_final_write_reaches_the_caller_and_keeps_the_half(
    moody_shop: Shop, halves: FakeHalves, failure: TxSagaError, code: str, decision: Decision
) -> None:
    producer = moody_shop.producer()
    receipt = producer.prepare_now(ORDERS, b"a chair")
    halves.broken.append(failure)
    with pytest.raises(type(failure)) as raised:
        producer.decide(receipt, decision).result(10)
    assert raised.value.code == code
    assert (moody_shop.state(receipt.txid), moody_shop.bodies()) == ("prepared", [])
    assert moody_shop.view(receipt.txid).prepared
    assert producer.decide(receipt, decision).result(10).won


@pytest.mark.req("RMQ-90")
def test_codes_are_those_of_the_protocol() -> None:
    known = set(ReplyCode)
    kinds: list[type[TxSagaError]] = [TxSagaError]
    for kind in kinds:
        kinds += kind.__subclasses__()
        assert getattr(kind, "code", "SYSTEM_ERROR") in known, kind


@pytest.mark.req("RMQ-71")
@pytest.mark.parametrize("written", [False, True], ids=["nothing was written", "only the answer was lost"])
def test_a_commit_that_failed_may_be_tried_again(moody_shop: Shop, halves: FakeHalves, written: bool) -> None:
    producer = moody_shop.producer(checker=says(COMMIT))
    receipt = producer.prepare_now(ORDERS, b"a chair")
    failure = StoreUnavailable("the home database did not answer")
    (halves.lost if written else halves.broken).append(failure)
    with pytest.raises(StoreUnavailable) as raised:
        producer.commit(receipt)
    assert raised.value.retryable
    standing = producer.commit(receipt)
    assert (standing.decision, standing.won) == (Decision.COMMIT, not written)
    assert producer.commit(receipt).decision is Decision.COMMIT
    moody_shop.check()
    assert moody_shop.bodies() == ["a chair"]


@pytest.mark.req("RMQ-71")
def test_a_commit_that_failed_may_be_left_to_the_check(moody_shop: Shop, halves: FakeHalves) -> None:
    producer = moody_shop.producer(checker=says(COMMIT))
    receipt = producer.prepare_now(ORDERS, b"a chair")
    halves.broken.append(StoreUnavailable("the home database did not answer"))
    with pytest.raises(StoreUnavailable):
        producer.commit(receipt)
    assert moody_shop.check() == 1
    assert moody_shop.bodies() == ["a chair"]
    assert moody_shop.check() == 0
    assert moody_shop.bodies() == ["a chair"]
