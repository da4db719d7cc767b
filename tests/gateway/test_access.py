"""Who may call: clients with an id and, if the gateway has keys, with a signature by one of them."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.calling import PRODUCER, RawClient, listening, message
from tests.gateway.test_checks import answering
from txsaga.broker import Broker
from txsaga.errors import ConfigError
from txsaga.gateway import wire
from txsaga.gateway.access import OPEN, RIGHTS
from txsaga.gateway.access_keys import AccessKey, read_keys
from txsaga.gateway.status import Code

pytestmark = pytest.mark.postgres
KEYS = {"anna": AccessKey("secret")}
DATE = "20261129T230000Z"


def signed(key: str = "anna", secret: str = "secret", date: str = DATE) -> Mapping[str, str]:
    signature = hmac.new(secret.encode(), DATE.encode(), hashlib.sha1).hexdigest().upper()
    said = f"MQv2-HMAC-SHA1 Credential={key}/region/Rocketmq, SignedHeaders=x-mq-date-time, Signature={signature}"
    return {"x-mq-date-time": date, "authorization": said}


METHODS = sorted(method.name for method in wire.SERVICE.methods if not method.client_streaming)


@pytest.mark.parametrize(
    "headers",
    [{}, signed(secret="other"), signed(key="ben"), signed(date="20261129T230001Z"), {"authorization": "Basic x"}],
    ids=["none", "secret", "key", "date", "kind"],
)
def test_no_call_is_served_without_a_signature(broker: Broker, headers: Mapping[str, str]) -> None:
    with listening(broker, KEYS) as address, RawClient(address, headers=headers) as client:
        for name in METHODS:
            if name == "ReceiveMessage":
                answers = client.receive("readers", "news", wait=0.1)
            elif name == "PullMessage":
                answers = client.stream(name)
            else:
                answers = [client(name)]
            assert [Code(each.status.code) for each in answers] == [Code.UNAUTHORIZED], name
        with client.connected("orders") as told:
            assert Code(told.get(timeout=20).status.code) is Code.UNAUTHORIZED


def test_a_signed_call_is_served(broker: Broker) -> None:
    with listening(broker, KEYS) as address, RawClient(address, headers=signed()) as client:
        assert Code(client.send(message("news")).status.code) is Code.OK
        assert len(client.messages("readers", "news")) == 1


def test_a_call_without_a_client_id_is_refused(gateway: str) -> None:
    with RawClient(gateway, id="") as client:
        assert Code(client("Heartbeat", client_type=PRODUCER).status.code) is Code.CLIENT_ID_REQUIRED


def test_calls_that_are_not_there_say_so(client: RawClient) -> None:
    assert Code(client("SyncLiteSubscription").status.code) is Code.NOT_IMPLEMENTED


MINE = AccessKey("secret", {"send": ["ord*"], "receive": ["news"], "group": ["mine"]})


@pytest.fixture
def limited(broker: Broker) -> Iterator[RawClient]:
    with listening(broker, {"anna": MINE}) as address, RawClient(address, headers=signed()) as client:
        yield client


def test_a_key_does_what_its_rights_cover(limited: RawClient) -> None:
    (entry,) = limited.send(message("orders", type="TRANSACTION")).entries
    named = {"topic": {"name": "orders"}, "transaction_id": entry.transaction_id}
    commit = wire.number("TransactionResolution", "COMMIT")
    assert Code(limited("EndTransaction", **named, resolution=commit).status.code) is Code.OK
    assert Code(limited.receive("mine", "news", wait=0.1)[0].status.code) is Code.MESSAGE_NOT_FOUND
    with limited.connected("orders") as told:
        assert Code(told.get(timeout=20).status.code) is Code.OK


def fields_of(method: str) -> Mapping[str, Any]:
    """Name a topic and a group that the key does not cover, as the call has them."""
    if method == "SendMessage":
        return {"messages": [message("orders", type="TRANSACTION"), message("news")]}
    topic, group = {"name": "lines"}, {"name": "others"}
    said = {"topic": topic, "message_queue": {"topic": topic}, "group": group}
    known = wire.SERVICE.methods_by_name[method].input_type.fields_by_name
    return {name: value for name, value in said.items() if name in known}


@pytest.mark.parametrize("method", [name for name in METHODS if name not in OPEN])
def test_no_call_does_what_the_rights_of_its_key_do_not_cover(limited: RawClient, method: str) -> None:
    call = limited.stream if wire.SERVICE.methods_by_name[method].server_streaming else limited
    answer = call(method, **fields_of(method))
    refused = answer[0] if isinstance(answer, list) else answer
    assert Code(refused.status.code) is Code.FORBIDDEN


def test_a_group_or_a_topic_alone_is_not_enough(limited: RawClient) -> None:
    for group, topic in (("mine", "lines"), ("others", "news")):
        assert Code(limited.receive(group, topic, wait=0.1)[0].status.code) is Code.FORBIDDEN


def test_a_client_hears_of_no_transaction_of_a_topic_that_its_key_does_not_cover(limited: RawClient) -> None:
    with limited.connected("orders", "later") as told:
        refused = told.get(timeout=20).status
    assert (Code(refused.code), refused.message) == (
        Code.FORBIDDEN,
        "the key may not send to topic 'later'; add it to send= of the key",
    )
    reader = {"client_type": 3, "subscription": {"group": {"name": "others"}}}
    with limited.connected(**reader) as told:
        assert Code(told.get(timeout=20).status.code) is Code.FORBIDDEN


def test_a_client_can_not_end_the_stream_of_another_key(broker: Broker) -> None:
    keys = {"anna": AccessKey("secret"), "ben": AccessKey("other")}
    with (
        listening(broker, keys) as address,
        RawClient(address, headers=signed()) as client,
        RawClient(address, headers=signed("ben", "other")) as other,
        client.connected("orders") as told,
    ):
        told.get(timeout=20)
        other("NotifyClientTermination")
        client.send(message("orders", type="TRANSACTION"))
        with answering(broker):
            assert told.get(timeout=20).HasField("recover_orphaned_transaction_command")


def test_a_file_of_keys_is_read_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# who\nanna:secret\n\nben:with:colon send=orders,pay-* group=mine\n")
    assert read_keys(file, RIGHTS) == {
        "anna": AccessKey("secret"),
        "ben": AccessKey("with:colon", {"send": ["orders", "pay-*"], "group": ["mine"]}),
    }
    file.write_text("anna:a\nanna:b\n")
    with pytest.raises(ConfigError, match=r"line 2 of .* its key is there twice"):
        read_keys(file, RIGHTS)
    for wrong in ("anna:secret sends=x", "anna:secret send=a,,b", "anna:secret send"):
        file.write_text(wrong)
        with pytest.raises(ConfigError, match=r"line 1 of .* is no right; write send, receive, group"):
            read_keys(file, RIGHTS)
    file.write_text("anna\n")
    with pytest.raises(ConfigError, match=r"line 1 of .* is not KEY:SECRET"):
        read_keys(file, RIGHTS)
    with pytest.raises(ConfigError, match="can't be read"):
        read_keys(tmp_path / "nothing", RIGHTS)
