"""What pull consumers call: messages from an offset on, and the offsets of queues and groups."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.gateway.calling import RawClient, message
from txsaga.broker import Broker
from txsaga.gateway import wire
from txsaga.gateway.status import Code

pytestmark = pytest.mark.postgres
END, TIMESTAMP = (wire.number("QueryOffsetPolicy", name) for name in ("END", "TIMESTAMP"))
SQL = wire.number("FilterType", "SQL")


def queue(topic: str = "orders", id: int = 0) -> Any:
    return {"topic": {"name": topic}, "id": id}


def pull(client: RawClient, offset: int, *, wait: float = 0, most: int = 16, **given: Any) -> Sequence[Any]:
    fields = {"group": {"name": "pullers"}, "message_queue": queue(), "offset": offset, "batch_size": most}
    return client.stream("PullMessage", **{**fields, "long_polling_timeout": wire.in_parts(wait), **given})


def pulled(parts: Sequence[Any]) -> tuple[list[bytes], int]:
    return [part.message.body for part in parts if part.HasField("message")], parts[-1].next_offset


def commit(client: RawClient, *bodies: bytes) -> None:
    for body in bodies:
        (entry,) = client.send(message("orders", body, type="TRANSACTION", tag=body.decode())).entries
        assert Code(client.end(entry.transaction_id, "COMMIT").status.code) is Code.OK


def seen(client: RawClient, offset: int) -> None:
    """Wait until a queue ends at an offset."""
    until = time.monotonic() + 20
    while client("QueryOffset", message_queue=queue(), query_offset_policy=END).offset != offset:
        assert time.monotonic() < until
        time.sleep(0.05)


def test_messages_are_read_from_an_offset_on_as_often_as_asked(client: RawClient) -> None:
    commit(client, b"a", b"b", b"c")
    seen(client, 3)
    assert pulled(pull(client, 0, most=2)) == ([b"a", b"b"], 2)
    assert pulled(pull(client, 2, most=2)) == ([b"c"], 3)
    assert pulled(pull(client, 1)) == ([b"b", b"c"], 3)


@pytest.mark.req("RMQ-17")
def test_an_undecided_message_is_not_pulled(client: RawClient) -> None:
    client.send(message("orders", b"half", type="TRANSACTION"))
    commit(client, b"whole")
    assert pulled(pull(client, 0, wait=10)) == ([b"whole"], 1)
    (refused,) = pull(client, 0, message_queue=queue("RMQ_SYS_TRANS_HALF_TOPIC"))
    assert Code(refused.status.code) is Code.ILLEGAL_TOPIC


def test_a_pull_waits_for_a_message_and_passes_over_those_that_it_does_not_want(client: RawClient) -> None:
    commit(client, b"other")
    parts = pull(client, 0, wait=0.5, filter_expression={"expression": "a"})
    assert (Code(parts[0].status.code), pulled(parts)) == (Code.MESSAGE_NOT_FOUND, ([], 1))
    commit(client, b"a")
    assert pulled(pull(client, 1, wait=10, filter_expression={"type": SQL, "expression": "TAGS = 'a'"})) == ([b"a"], 2)


def test_offsets_of_a_queue_are_found_by_their_place_and_by_time(client: RawClient) -> None:
    commit(client, b"a")
    seen(client, 1)
    between = datetime.now(UTC).timestamp()
    commit(client, b"b")
    seen(client, 2)
    at = {"timestamp": wire.in_parts(between), "query_offset_policy": TIMESTAMP}
    assert client("QueryOffset", message_queue=queue()).offset == 0
    assert client("QueryOffset", message_queue=queue(), **at).offset == 1


def test_a_group_continues_at_the_offset_that_was_stored(client: RawClient, broker: Broker) -> None:
    commit(client, b"a", b"b")
    seen(client, 2)
    whose = {"group": {"name": "pullers"}, "message_queue": queue()}
    assert Code(client("GetOffset", **whose).status.code) is Code.CONSUMER_GROUP_NOT_FOUND
    assert Code(client("UpdateOffset", **whose, offset=1).status.code) is Code.OK
    assert client("GetOffset", **whose).offset == 1
    with broker.stream("pullers", ["orders"]) as stream:
        assert next(stream.messages(wait=10)).body == b"b"
        taken = client("UpdateOffset", **whose, offset=0)
        assert Code(taken.status.code) is Code.ILLEGAL_CONSUMER_GROUP


def test_the_lag_of_a_group_that_receives_can_be_read(client: RawClient) -> None:
    commit(client, b"a", b"b")
    seen(client, 2)
    got = client.messages("readers", "orders")
    whose = {"group": {"name": "readers"}, "message_queue": queue()}
    assert client("GetOffset", **whose).offset == 0
    entries = [{"receipt_handle": each.system_properties.receipt_handle} for each in got]
    client("AckMessage", group={"name": "readers"}, topic={"name": "orders"}, entries=entries)
    assert client("GetOffset", **whose).offset == 2
    assert Code(client("UpdateOffset", **whose, offset=0).status.code) is Code.ILLEGAL_CONSUMER_GROUP
    elsewhere = {"group": {"name": "readers"}, "message_queue": queue("news")}
    assert Code(client("GetOffset", **elsewhere).status.code) is Code.OFFSET_NOT_FOUND


@pytest.mark.parametrize(
    ("call", "given", "why"),
    [
        ("QueryOffset", {"message_queue": queue(id=1)}, Code.BAD_REQUEST),
        ("QueryOffset", {"message_queue": queue("nowhere")}, Code.TOPIC_NOT_FOUND),
        (
            "QueryOffset",
            {"message_queue": queue(), "query_offset_policy": TIMESTAMP, "timestamp": {"seconds": 2**62}},
            Code.BAD_REQUEST,
        ),
        ("UpdateOffset", {"message_queue": queue(), "group": {"name": "g"}, "offset": 1}, Code.ILLEGAL_OFFSET),
        ("GetOffset", {"message_queue": queue(), "group": {"name": "a b"}}, Code.ILLEGAL_CONSUMER_GROUP),
    ],
)
def test_a_place_that_is_not_there_is_refused(client: RawClient, call: str, given: Any, why: Code) -> None:
    assert Code(client(call, **given).status.code) is why
    (refused,) = pull(client, 7)
    assert (Code(refused.status.code), refused.status.message) == (
        Code.ILLEGAL_OFFSET,
        "offset 7 is not in the queue; give one from 0 to 0",
    )
