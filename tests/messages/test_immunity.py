"""A half with an immunity of its own: after that an ordinary end comes too late, and the check decides."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.oracle.halves import effective
from tests.scene.shop import ORDERS, Shop, order, says
from tests.scene.stored import Stored
from txsaga import COMMIT, ROLLBACK, LocalState, Message
from txsaga.checkback.profile import HEADER, CheckProfile, read_immunity
from txsaga.core.decision import Decision, ReplyCode
from txsaga.errors import EndRefused, InvalidMessage
from txsaga.rocketmq import EndRequest, EndRequestHandler
from txsaga.testing.checking import check_once

CASES = {"1": 6, "5": 6, None: 6, "-1": 6, "100.5": 6, "7": 7, "60": 60, "100": 100}
MORE = {"30": 30, "abc": 6, "": 6, " 7": 6, "\u0667": 6, "9999999999": 6, "0": 6}


@pytest.mark.conf("BRK-44")
@pytest.mark.parametrize(("text", "seconds"), [*CASES.items(), *MORE.items()])
def test_an_immunity_is_read_in_whole_seconds_and_never_below_the_minimum_age(text: str | None, seconds: int) -> None:
    assert effective(read_immunity(text)) == seconds


def test_a_header_of_many_digits_counts_as_not_set() -> None:
    assert read_immunity("1" * 30_000) is None


@pytest.mark.req("RMQ-91")
@pytest.mark.conf("BRK-05", "BRK-06")
@pytest.mark.parametrize("decision", Decision)
@pytest.mark.parametrize(("immunity", "age"), [(10, 12), (60, 65)])
def test_an_ordinary_end_after_the_immunity_is_left_to_the_check(
    shop: Shop, stored: Stored, decision: Decision, immunity: int, age: int
) -> None:
    ends: list[EndRequest] = []
    producer = shop.mq_producer(end_hooks=[ends.append])
    producer.send_message_in_transaction(order(), executor=says(None), immunity=immunity)
    stored.let_pass(age)
    request = replace(ends[0], state=LocalState[decision.name])
    late = EndRequestHandler(shop.broker.kernel).submit(request)
    assert late is not None
    with pytest.raises(EndRefused, match="immunity") as refused:
        late.result(10)
    assert refused.value.code == ReplyCode.ILLEGAL_OPERATION
    assert shop.state(request.commit_log_offset) == "prepared"
    checked = EndRequestHandler(shop.broker.kernel).submit(replace(request, from_check=True))
    assert checked is not None
    assert checked.result(10).won
    assert len(shop.read()) == (decision is Decision.COMMIT)


@pytest.mark.req("RMQ-74", "RMQ-91")
def test_an_immunity_below_the_least_age_of_its_group_is_raised_to_it_for_the_end_too(
    shop: Shop, stored: Stored
) -> None:
    shop.producer()
    shop.broker.set_checks("shop", min_age=timedelta(seconds=30))
    ends: list[EndRequest] = []
    producer = shop.mq_producer(end_hooks=[ends.append])
    for _ in range(2):
        producer.send_message_in_transaction(order(), executor=says(None), immunity=10)
    stored.let_pass(12)
    in_time, late = (EndRequestHandler(shop.broker.kernel), EndRequestHandler(shop.broker.kernel))
    first = in_time.submit(replace(ends[0], state=COMMIT))
    assert first is not None
    assert first.result(10).won
    stored.let_pass(20)
    second = late.submit(replace(ends[1], state=COMMIT))
    assert second is not None
    with pytest.raises(EndRefused, match="immunity"):
        second.result(10)


@pytest.fixture(params=["shop", "moody_shop"])
def any_shop(request: pytest.FixtureRequest) -> Shop:
    """Give a shop on the home database, and one in memory."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Shop)
    return found


def rounds(shop: Shop, *pauses: float) -> None:
    """Let time pass and run a round of the check-back, again and again."""
    for pause in pauses:
        shop.later(pause)
        check_once(shop.broker, CheckProfile(interval=timedelta(seconds=30)))


@pytest.mark.req("RMQ-73", "RMQ-74", "RMQ-84")
@pytest.mark.parametrize(("immunity", "asked"), [(None, 8), (1, 8), (40, 60), (600, 660)])
def test_a_half_is_asked_about_in_the_first_round_after_its_immunity(
    any_shop: Shop, immunity: int | None, asked: int
) -> None:
    """At 2, 8, 60, 540 and 660 seconds and a few; what is shorter than the minimum age is raised to it."""
    heard: list[object] = []
    any_shop.producer(checker=heard.append).prepare(ORDERS, b"", immunity=immunity).result(10)
    moments = [2, 8, 60, 540, 660]
    any_shop.later(2)
    any_shop.deliver()
    seen = []
    for pause in (0, 6, 52, 480, 120):
        rounds(any_shop, pause)
        seen.append(len(heard))
    first = moments.index(asked)
    assert seen[first:][:1] == [1]
    assert set(seen[:first]) <= {0}
    assert any_shop.store.doubts.of(1).checks == seen[-1]  # type: ignore[union-attr]  # it is there


@pytest.mark.req("RMQ-84")
def test_rounds_within_the_immunity_take_nothing_from_the_checks(any_shop: Shop) -> None:
    heard: list[object] = []
    any_shop.producer(checker=heard.append).prepare(ORDERS, b"", immunity=600).result(10)
    any_shop.later(2)
    any_shop.deliver()
    rounds(any_shop, *[31] * 18)  # up to 560 seconds, and those that it takes
    assert heard == []
    rounds(any_shop, *[31] * 20)
    assert len(heard) == 15


def test_an_immunity_without_a_half_is_refused(moody_shop: Shop) -> None:
    """Only a half is left alone by its own wish; a transaction with a row is asked about when it is closed."""
    producer = moody_shop.producer()
    with pytest.raises(InvalidMessage, match="immunity is for half messages"):
        producer.transaction(key="order-42", immunity=10)
    with pytest.raises(InvalidMessage, match="immunity"), producer.transaction(immunity=10) as tx:
        tx.later(ORDERS)
    with pytest.raises(InvalidMessage, match="immunity"), producer.transaction(immunity=10) as tx:
        tx.join_life()
    assert list(moody_shop.listed()) == []


@pytest.mark.req("RMQ-91")
def test_an_end_within_the_immunity_is_taken(shop: Shop, stored: Stored) -> None:
    producer = shop.producer()
    early = [producer.prepare(ORDERS, b"", immunity=seconds).result(10) for seconds in (30, 1)]
    stored.let_pass(2)  # past the second one's own time, but no immunity is shorter than the minimum age
    assert [producer.commit(receipt).won for receipt in early] == [True, True]
    late = [producer.prepare(ORDERS, b"", immunity=seconds).result(10) for seconds in (30, 1)]
    stored.let_pass(8)
    assert producer.commit(late[0]).won
    with pytest.raises(EndRefused, match="ILLEGAL_OPERATION"):
        producer.commit(late[1])


@pytest.mark.req("RMQ-91")
def test_without_an_immunity_no_end_is_too_late(shop: Shop, stored: Stored) -> None:
    producer = shop.producer()
    receipts = [
        producer.prepare_now(ORDERS, b""),
        producer.prepare_now(ORDERS, b"", headers={HEADER: "soon"}),
    ]
    stored.let_pass(3 * 24 * 3600)
    assert [producer.commit(receipt).won for receipt in receipts] == [True, True]


@pytest.mark.req("RMQ-91")
def test_the_immunity_of_a_message_may_come_as_its_header(shop: Shop, stored: Stored) -> None:
    producer = shop.producer()
    by_header = producer.prepare_now(ORDERS, b"", headers={HEADER: "10"})
    argument_first = producer.prepare(order(headers={HEADER: "10"}), immunity=100).result(10)
    stored.let_pass(12)
    with pytest.raises(EndRefused, match="ILLEGAL_OPERATION"):
        producer.commit(by_header)
    assert producer.commit(argument_first).won


@pytest.mark.req("RMQ-91", "RMQ-44")
@pytest.mark.parametrize("answer", [COMMIT, ROLLBACK])
def test_local_work_that_outlasts_the_immunity_is_settled_by_the_check(
    shop: Shop, stored: Stored, caplog: pytest.LogCaptureFixture, answer: LocalState
) -> None:
    def slow(message: Message, arg: object) -> LocalState:
        stored.let_pass(12)
        return COMMIT

    result = shop.mq_producer(checker=says(answer)).send_message_in_transaction(order(), executor=slow, immunity=10)
    assert (result.local_state, shop.state(result.queue_offset)) == (COMMIT, "prepared")
    assert any("ILLEGAL_OPERATION" in r.message and result.message_id in r.message for r in caplog.records)
    assert shop.check() == 1
    assert len(shop.read()) == (answer is COMMIT)


@pytest.mark.req("RMQ-91")
def test_a_block_that_outlasts_its_immunity_raises_and_is_settled_by_the_check(shop: Shop, stored: Stored) -> None:
    with pytest.raises(EndRefused, match="immunity"), shop.producer().transaction(immunity=10) as tx:
        tx.send(order())
        tx.prepare()
        stored.let_pass(12)
    assert shop.check() == 1
    assert shop.bodies() == ["a chair"]
