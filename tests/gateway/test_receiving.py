"""What consumers call: receive, acknowledge, hold for longer, give up; from any instance."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest

from tests.gateway.calling import RawClient, listening, message
from txsaga.broker import Broker
from txsaga.consume.consumer import Consumer
from txsaga.gateway import wire
from txsaga.gateway.status import Code

pytestmark = pytest.mark.postgres
ODD = ["", "x", "1.2.3", "f" * 500, "1.0.1.3.1.1", "-1.0.1.1.1.1", "1.0.1.2.1.1", "7fffffffff.0.1.1.1.1", "1.0.0.1.1.1"]
READERS = {"group": {"name": "readers"}, "topic": {"name": "news"}}


def code(answer: Any) -> Code:
    return Code(answer.status.code)


def handle(message: Any) -> str:
    return str(message.system_properties.receipt_handle)


def ack(client: RawClient, *messages: Any) -> Any:
    entries = [{"message_id": each.system_properties.message_id, "receipt_handle": handle(each)} for each in messages]
    return client("AckMessage", entries=entries, **READERS)


def test_an_answer_without_messages_comes_when_the_time_is_over(client: RawClient) -> None:
    began = time.monotonic()
    first, last = client.receive("readers", "news", wait=1)
    assert (code(first), last.HasField("delivery_timestamp")) == (Code.MESSAGE_NOT_FOUND, True)
    assert 0.9 < time.monotonic() - began < 5


def test_a_waiting_call_is_answered_once_a_message_is_there(client: RawClient, gateway: str) -> None:
    assert client.messages("readers", "news", wait=0.1) == []
    with RawClient(gateway, "other@1") as other:
        other.send(message("news"))
    began = time.monotonic()
    assert len(client.messages("readers", "news", wait=20)) == 1
    assert time.monotonic() - began < 10


def test_what_is_acknowledged_does_not_come_again(client: RawClient) -> None:
    client.send(*(message("news", body) for body in (b"one", b"two", b"three")))
    got: list[Any] = []
    while len(got) < 3:
        got += client.messages("readers", "news", invisible_duration=wire.in_parts(2))
    answer = ack(client, *(each for each in got if each.body != b"two"))
    assert (code(answer), [code(each) for each in answer.entries]) == (Code.OK, [Code.OK, Code.OK])
    (again,) = client.messages("readers", "news", wait=10)
    assert (again.body, again.system_properties.delivery_attempt) == (b"two", 2)
    late = ack(client, next(each for each in got if each.body == b"two"))
    assert (code(late), code(late.entries[0])) == (Code.INVALID_RECEIPT_HANDLE, Code.INVALID_RECEIPT_HANDLE)
    assert late.status.message == f"INVALID_RECEIPT_HANDLE: {late.entries[0].status.message}"


def test_another_instance_settles_what_one_has_delivered(client: RawClient, broker: Broker) -> None:
    client.send(message("news"))
    (got,) = client.messages("readers", "news")
    with listening(broker) as address, RawClient(address, "tester@1") as elsewhere:
        assert code(ack(elsewhere, got)) is Code.OK
        assert elsewhere.messages("readers", "news", wait=0.5) == []


def test_the_time_of_one_message_is_changed_and_those_beside_it_keep_theirs(client: RawClient) -> None:
    client.send(*(message("news", b"%d" % at, keys=["k"]) for at in range(3)))  # one queue: claimed together
    got: list[Any] = []
    while len(got) < 3:
        got += client.messages("readers", "news", invisible_duration=wire.in_parts(30))
    changed = client(
        "ChangeInvisibleDuration", receipt_handle=handle(got[1]), invisible_duration=wire.in_parts(0.5), **READERS
    )
    assert code(changed) is Code.OK
    (again,) = client.messages("readers", "news", wait=10)
    assert (again.body, again.system_properties.delivery_attempt) == (got[1].body, 2)
    assert code(ack(client, got[0], got[2], again)) is Code.OK


def test_a_changed_message_is_settled_by_its_new_handle(client: RawClient) -> None:
    client.send(message("news"))
    (got,) = client.messages("readers", "news", invisible_duration=wire.in_parts(30))
    given = {"receipt_handle": handle(got), "invisible_duration": wire.in_parts(20)}
    new = client("ChangeInvisibleDuration", **given, **READERS).receipt_handle
    assert code(ack(client, got)) is Code.INVALID_RECEIPT_HANDLE
    entries = [{"message_id": "x", "receipt_handle": new}]
    assert code(client("AckMessage", entries=entries, **READERS)) is Code.OK


def test_a_message_that_its_consumer_gives_up_is_a_dead_letter(client: RawClient, broker: Broker) -> None:
    client.send(message("news", b"poison"))
    (got,) = client.messages("readers", "news")
    forward = {"receipt_handle": handle(got), "delivery_attempt": 17, "max_delivery_attempts": 16}
    assert code(client("ForwardMessageToDeadLetterQueue", **forward, **READERS)) is Code.OK
    (letter,) = broker.dead_letters.list("readers", 5)
    assert (letter.topic, "17 deliveries" in letter.cause) == ("news", True)
    assert client.messages("readers", "news", wait=0.5) == []
    assert code(client("ForwardMessageToDeadLetterQueue", **forward, **READERS)) is Code.INVALID_RECEIPT_HANDLE
    broker.dead_letters.replay([letter.id])
    (again,) = client.messages("readers", "news")
    forward["receipt_handle"] = handle(again)
    assert code(client("ForwardMessageToDeadLetterQueue", **forward, **READERS)) is Code.OK
    (dead,) = broker.dead_letters.list("readers", 5)
    assert (dead.message.body if hasattr(dead, "message") else b"poison") == b"poison"
    elsewhere = {**READERS, "topic": {"name": "lines"}}
    assert code(client("ForwardMessageToDeadLetterQueue", receipt_handle=handle(got), **elsewhere)) is not Code.OK


def test_a_push_consumer_keeps_what_it_works_on_while_it_is_connected(
    client: RawClient, monkeypatch: pytest.MonkeyPatch, broker: Broker
) -> None:
    for module in ("receiving", "server"):
        monkeypatch.setattr(f"txsaga.gateway.{module}.RENEWED", timedelta(seconds=2))
    subscription = {"group": {"name": "readers"}, "subscriptions": [{"topic": {"name": "news"}}]}
    with listening(broker) as address, RawClient(address, "pusher@1") as pusher:
        with pusher.connected(client_type=2, subscription=subscription) as told:
            told.get(timeout=20)
            pusher.send(message("news"))
            (got,) = pusher.messages("readers", "news", auto_renew=True)
            assert client.messages("readers", "news", wait=5) == []
            assert code(ack(pusher, got)) is Code.OK
            pusher.send(message("news", b"failed"))
            (failed,) = pusher.messages("readers", "news", auto_renew=True)
            later = {"receipt_handle": handle(failed), "invisible_duration": wire.in_parts(2)}
            assert code(pusher("ChangeInvisibleDuration", **later, **READERS)) is Code.OK
            (again,) = pusher.messages("readers", "news", wait=10, auto_renew=True)  # it is not held any more
            assert (again.body, code(ack(pusher, again))) == (b"failed", Code.OK)
            pusher.send(message("news", b"left"))
            assert len(pusher.messages("readers", "news", auto_renew=True)) == 1
        (left,) = client.messages("readers", "news", wait=15)
        assert left.body == b"left"


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [("red", [b"red"]), ("red |||| blue ||", [b"blue", b"red"]), ("*", [b"", b"blue", b"red"])],
)
def test_a_filter_by_tag_leaves_out_the_others(client: RawClient, expression: str, wanted: list[bytes]) -> None:
    tagged = [message("news", b"red", tag="red"), message("news", b"blue", tag="blue"), message("news", b"x")]
    client.send(*tagged)
    filter = {"type": wire.number("FilterType", "TAG"), "expression": expression}
    got: list[bytes] = []
    while found := client.messages("readers", "news", wait=2, filter_expression=filter):
        got += [each.body.replace(b"x", b"") for each in found]
    assert sorted(got) == wanted


def test_a_call_gets_as_many_messages_as_rocketmq_gives_at_most(client: RawClient) -> None:
    client.send(*(message("news", b"%d" % at, keys=["k"]) for at in range(40)))  # one queue
    got = 0
    while got < 40:
        found = len(client.messages("readers", "news", batch_size=50))
        assert 0 < found <= 32
        got += found


def test_calls_of_one_client_at_the_same_time_get_each_message_once(client: RawClient) -> None:
    client.send(*(message("news", b"%d" % at) for at in range(60)))
    with ThreadPoolExecutor(6) as pool:
        found = [pool.submit(client.messages, "readers", "news", wait=1, batch_size=4) for _ in range(40)]
        bodies = [each.body for call in found for each in call.result()]
    assert sorted(bodies, key=int) == [b"%d" % at for at in range(60)]


def test_calls_that_wait_together_look_one_at_a_time(gateway: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    receive = Consumer.receive

    def look(*given: Any) -> Any:
        looks.append(time.monotonic())
        return receive(*given)

    monkeypatch.setattr(Consumer, "receive", look)
    with ExitStack() as opened, ThreadPoolExecutor(20) as pool:
        clients = [opened.enter_context(RawClient(gateway, f"idle@{at}")) for at in range(20)]
        calls = [pool.submit(each.messages, "readers", "news", wait=3) for each in clients]
        assert [each.result() for each in calls] == [[]] * 20
    assert 20 <= len(looks) <= 60  # each when it comes, then one of them each second; alone, each would look four times


def test_a_filter_by_properties_leaves_out_the_others(client: RawClient) -> None:
    client.send(*(message("news", b"%d" % size, properties={"size": str(size)}) for size in range(5)))
    filter = {"type": wire.number("FilterType", "SQL"), "expression": "size > 1 AND size <> 3"}
    got: list[bytes] = []
    while found := client.messages("readers", "news", wait=2, filter_expression=filter):
        got += [each.body for each in found]
    assert sorted(got) == [b"2", b"4"]


@pytest.mark.req("RMQ-17", "RMQ-22", "RMQ-97")
@pytest.mark.parametrize("topic", ["RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"])
def test_the_half_store_can_not_be_read(client: RawClient, topic: str) -> None:
    client.send(message("orders", type="TRANSACTION"))
    (refused,) = client.receive("readers", topic, wait=0.1)
    assert code(refused) is Code.ILLEGAL_TOPIC


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"filter_expression": {"type": 2, "expression": "a ="}}, Code.ILLEGAL_FILTER_EXPRESSION),
        ({"filter_expression": {"type": 1, "expression": " || "}}, Code.ILLEGAL_FILTER_EXPRESSION),
        ({"invisible_duration": {"seconds": 10**6}}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_duration": {"seconds": -5}}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_duration": {"seconds": 2**62}}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"long_polling_timeout": {"seconds": -(2**62)}}, Code.MESSAGE_NOT_FOUND),
    ],
)
def test_a_call_that_makes_no_sense_is_refused_with_its_code(client: RawClient, given: Any, why: Code) -> None:
    assert code(client.receive("readers", "news", wait=0.1, **given)[0]) is why


@pytest.mark.parametrize(("seconds", "words"), [(0.01, "too small"), (50_000, "too large")])
def test_a_refused_invisible_duration_is_named_as_rocketmq_names_it(
    client: RawClient, seconds: float, words: str
) -> None:
    (refused,) = client.receive("readers", "news", wait=0.1, invisible_duration=wire.in_parts(seconds))
    assert f"the invisibleTime is {words}" in refused.status.message


def test_a_receipt_that_was_changed_settles_no_message(client: RawClient, broker: Broker) -> None:
    client.send(message("news", b"1"), message("news", b"2"), message("news", b"3"))
    got = client.messages("readers", "news") + client.messages("readers", "news", wait=0.5)
    for each in got:
        qid, base, _, _, *rest = handle(each).split(".")
        copy = ".".join((qid, base, "40", "1", *rest))  # as if it were a replayed letter
        for changed in (copy, handle(each) + ".c"):
            given = {"receipt_handle": changed, "topic": {"name": "news"}, "group": {"name": "readers"}}
            assert code(client("ForwardMessageToDeadLetterQueue", **given)) is Code.INVALID_RECEIPT_HANDLE
    assert broker.dead_letters.list("readers") == []
    assert len(got) == 3
    assert code(ack(client, *got)) is Code.OK


@pytest.mark.parametrize("handle", ODD)
def test_a_handle_that_was_never_given_settles_nothing(client: RawClient, handle: str) -> None:
    entries = [{"message_id": "x", "receipt_handle": handle}]
    given = {"receipt_handle": handle, "invisible_duration": wire.in_parts(1)}
    assert code(client("AckMessage", entries=entries, **READERS)) is Code.INVALID_RECEIPT_HANDLE
    assert code(client("ChangeInvisibleDuration", **given, **READERS)) is Code.INVALID_RECEIPT_HANDLE
