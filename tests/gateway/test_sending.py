"""What producers call: each kind of send, the end of a transaction, a recall, and what is refused."""

from __future__ import annotations

import gzip
import hashlib
import time
from typing import Any

import pytest

from tests.gateway.calling import RawClient, listening, message
from txsaga.broker import Broker
from txsaga.core.message import TRANSACTION_ID
from txsaga.gateway import wire
from txsaga.gateway.status import Code

pytestmark = pytest.mark.postgres


def code(answer: Any) -> Code:
    return Code(answer.status.code)


def bodies(client: RawClient, topic: str, **given: Any) -> list[bytes]:
    return [each.body for each in client.messages("readers", topic, **given)]


@pytest.mark.conf("PRX-18")
def test_a_message_arrives_as_it_was_sent(client: RawClient) -> None:
    sent = message("news", id="0102", tag="red", keys=["a", "b"], properties={"size": "7"})
    (entry,) = client.send(sent).entries
    assert (code(entry), entry.message_id) == (Code.OK, "0102")
    (got,) = client.messages("readers", "news")
    given = got.system_properties
    assert (got.body, got.topic.name, given.message_id, given.tag, [*given.keys]) == (
        b"hello",
        "news",
        "0102",
        "red",
        ["a", "b"],
    )
    assert (got.user_properties["size"], given.delivery_attempt) == ("7", 1)
    assert given.body_digest.checksum == hashlib.md5(b"hello").hexdigest().upper()
    assert abs(wire.moment(given.born_timestamp).timestamp() - time.time()) < 60


def test_several_messages_of_one_call_are_stored_each_by_itself(client: RawClient) -> None:
    answer = client.send(message("news", b"one"), message("news", b""), message("news", b"two"))
    assert code(answer) is Code.MULTIPLE_RESULTS
    assert [code(each) for each in answer.entries] == [Code.OK, Code.MESSAGE_BODY_EMPTY, Code.OK]
    assert sorted(bodies(client, "news") + bodies(client, "news", wait=2)) == [b"one", b"two"]


@pytest.mark.conf("PRX-18")
def test_a_compressed_body_is_readable_for_every_client(client: RawClient) -> None:
    packed = gzip.compress(b"x" * 10_000)
    assert code(client.send(message("news", packed, body_encoding=wire.number("Encoding", "GZIP")))) is Code.OK
    assert bodies(client, "news") == [b"x" * 10_000]


def test_a_message_that_makes_no_sense_does_not_hide_the_fate_of_the_others(client: RawClient) -> None:
    odd = message("later", b"odd", type="DELAY", delivery_timestamp={"seconds": -(2**62)})
    answer = client.send(message("news", b"good"), odd)
    assert [code(each) for each in answer.entries] == [Code.OK, Code.ILLEGAL_DELIVERY_TIME]
    assert bodies(client, "news") == [b"good"]


def test_the_first_messages_of_a_group_are_stored_as_they_came(client: RawClient) -> None:
    client.send(*(message("lines", b"%02d" % at, type="FIFO", message_group="g") for at in range(20)))
    got: list[bytes] = []
    while len(got) < 20:
        got += bodies(client, "lines")
    assert got == [b"%02d" % at for at in range(20)]


@pytest.mark.req("RMQ-65")
@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (message("nowhere"), Code.TOPIC_NOT_FOUND),
        (message("RMQ_SYS_TRANS_HALF_TOPIC"), Code.ILLEGAL_TOPIC),
        (message("news", type="TRANSACTION"), Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (message("news", type="FIFO", message_group="g"), Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (message("orders"), Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (message("lines", type="FIFO"), Code.BAD_REQUEST),
        (message("news", tag="a|b"), Code.ILLEGAL_MESSAGE_TAG),
        (message("news", keys=[" "]), Code.ILLEGAL_MESSAGE_KEY),
        (message("lines", type="FIFO", message_group="g" * 65), Code.ILLEGAL_MESSAGE_GROUP),
        (message("news", tag="a\0"), Code.ILLEGAL_MESSAGE_TAG),
        (message("news", keys=["k\n"]), Code.ILLEGAL_MESSAGE_KEY),
        (message("lines", type="FIFO", message_group="g\t"), Code.ILLEGAL_MESSAGE_GROUP),
        (message("news", properties={"p\0": "v"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (message("news", properties={"p": "v\x85"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (message("news", properties={"UNIQ_KEY": "v"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (message("news", properties={"p": "x" * 16_384}), Code.MESSAGE_PROPERTIES_TOO_LARGE),
        (message("news", properties={"p": "x" * 16_381}, tag="a", keys=["b", "c"]), Code.MESSAGE_PROPERTIES_TOO_LARGE),
        (message("news", properties={f"{at}": "" for at in range(129)}), Code.MESSAGE_PROPERTIES_TOO_LARGE),
        (message("later", type="DELAY", delivery_timestamp={"seconds": 2**40}), Code.ILLEGAL_DELIVERY_TIME),
        (message("news", b"x" * 5_000_000), Code.MESSAGE_BODY_TOO_LARGE),
        (message("news", body_digest={"type": 1, "checksum": "0BAD0BAD"}), Code.MESSAGE_CORRUPTED),
        (message("news", b"no gzip", body_encoding=2), Code.MESSAGE_CORRUPTED),
        (
            message("orders", type="TRANSACTION", orphaned_transaction_recovery_duration={"seconds": 7200}),
            Code.BAD_REQUEST,
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Code) else "",
)
def test_what_rocketmq_refuses_is_refused_with_its_code(client: RawClient, sent: Any, why: Code) -> None:
    answer = client.send(sent)
    assert (code(answer), code(answer.entries[0])) == (why, why)
    assert answer.status.message


def test_a_message_for_later_comes_later_or_is_recalled(client: RawClient) -> None:
    soon = {"seconds": int(time.time()) + 2}
    (kept,) = client.send(message("later", b"kept", type="DELAY", delivery_timestamp=soon)).entries
    (gone,) = client.send(message("later", b"gone", type="DELAY", delivery_timestamp=soon)).entries
    assert code(client("RecallMessage", topic={"name": "later"}, recall_handle=gone.recall_handle)) is Code.OK
    assert bodies(client, "later") == [b"kept"]
    late = client("RecallMessage", topic={"name": "later"}, recall_handle=kept.recall_handle)
    assert code(late) is Code.PRECONDITION_FAILED


def test_a_delayed_message_says_when_it_was_due(client: RawClient) -> None:
    due = {"seconds": int(time.time()) - 20, "nanos": 125_000_000}
    client.send(message("later", type="DELAY", delivery_timestamp=due, properties={"size": "7"}))
    (got,) = client.messages("readers", "later")
    given = got.system_properties
    assert (given.delivery_timestamp.seconds, given.delivery_timestamp.nanos) == (due["seconds"], due["nanos"])
    assert given.message_type == wire.number("MessageType", "DELAY")
    assert got.user_properties.keys() == {"size", TRANSACTION_ID}


@pytest.mark.parametrize("text", ["soon", "-1", "9" * 99])
def test_a_header_that_only_looks_like_a_time_is_an_ordinary_one(client: RawClient, broker: Broker, text: str) -> None:
    broker.producer("any").send("news", b"hello", headers={"TIMER_DELIVER_MS": text})
    (got,) = client.messages("readers", "news")
    assert got.user_properties["TIMER_DELIVER_MS"] == text
    assert not got.system_properties.HasField("delivery_timestamp")


def test_as_many_properties_as_rocketmq_allows_are_stored(client: RawClient) -> None:
    many = {f"{at:03}": "é" for at in range(127)} | {"p": "x" * (16_384 - 127 * 5 - 1 - 2)}
    assert code(client.send(message("news", properties=many, tag="a", keys=["b"]))) is Code.OK
    (got,) = client.messages("readers", "news")
    assert many.items() <= dict(got.user_properties).items()


@pytest.mark.req("RMQ-46")
@pytest.mark.conf("PRX-01", "PRX-02", "PRX-04", "PRX-16", "PRX-23")
def test_a_half_message_is_visible_only_after_its_commit(client: RawClient) -> None:
    (first, second) = client.send(*(message("orders", body, type="TRANSACTION") for body in (b"one", b"two"))).entries
    assert bodies(client, "orders", wait=0.5) == []
    assert code(client.end(first.transaction_id, "COMMIT")) is Code.OK
    assert code(client.end(second.transaction_id, "ROLLBACK")) is Code.OK
    assert bodies(client, "orders") == [b"one"]


@pytest.mark.hole("H1")
def test_the_first_end_stands_and_repeating_it_is_no_error(client: RawClient) -> None:
    (entry,) = client.send(message("orders", type="TRANSACTION")).entries
    ends = [client.end(entry.transaction_id, each) for each in ("ROLLBACK", "ROLLBACK", "COMMIT")]
    assert [code(each) for each in ends] == [Code.OK, Code.OK, Code.PRECONDITION_FAILED]
    assert "ROLLBACK" in ends[2].status.message
    assert bodies(client, "orders", wait=0.5) == []


@pytest.mark.conf("PRX-03", "PRX-04")
def test_an_unknown_end_decides_nothing(client: RawClient) -> None:
    (entry,) = client.send(message("orders", type="TRANSACTION")).entries
    assert code(client.end(entry.transaction_id, "TRANSACTION_RESOLUTION_UNSPECIFIED")) is Code.OK
    assert code(client.end(entry.transaction_id, "COMMIT")) is Code.OK


@pytest.mark.hole("H9")
@pytest.mark.conf("PRX-05")
def test_any_instance_ends_what_another_one_stored(client: RawClient, broker: Broker) -> None:
    (entry,) = client.send(message("orders", type="TRANSACTION")).entries
    with listening(broker) as other, RawClient(other, "another@2") as elsewhere:
        assert code(elsewhere.end(entry.transaction_id, "COMMIT")) is Code.OK
        assert bodies(elsewhere, "orders") == [b"hello"]


@pytest.mark.req("RMQ-88")
@pytest.mark.hole("H13")
@pytest.mark.parametrize(
    "change",
    [
        lambda id: "",
        lambda id: "0102FC",
        lambda id: id[:-2] + ("00" if id[-2:] != "00" else "11"),  # another token
        lambda id: ".".join((id.split(".")[0], "7f", id.split(".")[2])),  # another group
        lambda id: ".".join((id.split(".")[0], "ffffffff", id.split(".")[2])),
        lambda id: ("1" if id[0] != "1" else "2") + id[1:],  # another store
    ],
    ids=["none", "of RocketMQ", "token", "group", "no group", "store"],
)
def test_an_id_that_was_not_given_for_it_ends_nothing(client: RawClient, change: Any) -> None:
    (entry,) = client.send(message("orders", type="TRANSACTION")).entries
    wrong = client.end(change(entry.transaction_id), "ROLLBACK")
    assert code(wrong) in (Code.INVALID_TRANSACTION_ID, Code.FORBIDDEN)
    assert code(client.end(entry.transaction_id, "COMMIT")) is Code.OK
