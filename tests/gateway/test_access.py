"""Who may call: clients with an id and, if the gateway has keys, with a signature by one of them."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.gateway.calling import PRODUCER, RawClient, listening, message
from txsaga.broker import Broker
from txsaga.errors import ConfigError
from txsaga.gateway import wire
from txsaga.gateway.access import read_keys
from txsaga.gateway.status import Code

pytestmark = pytest.mark.postgres
KEYS = {"anna": "secret"}
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
    for name in ("GetOffset", "QueryOffset", "UpdateOffset", "SyncLiteSubscription"):
        assert Code(client(name).status.code) is Code.NOT_IMPLEMENTED
    (pulled,) = client.stream("PullMessage")
    assert Code(pulled.status.code) is Code.NOT_IMPLEMENTED


def test_a_file_of_keys_is_read_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# who\nanna:secret\n\nben:with:colon\n")
    assert read_keys(file) == {"anna": "secret", "ben": "with:colon"}
    file.write_text("anna\n")
    with pytest.raises(ConfigError, match=r"line 1 of .* is not KEY:SECRET"):
        read_keys(file)
    with pytest.raises(ConfigError, match="can't be read"):
        read_keys(tmp_path / "nothing")
