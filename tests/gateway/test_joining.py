"""A message of a RocketMQ client joins the transaction of another program: it is visible with it, or never."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.calling import RawClient, message
from tests.scene.elsewhere import Elsewhere
from txsaga.broker import Broker
from txsaga.errors import DecidedOtherwise
from txsaga.gateway.messages import JOINS
from txsaga.gateway.status import Code

pytestmark = pytest.mark.postgres
PROGRAM = Path(__file__).parent / "clients" / "joining.py"


def joining(
    client: RawClient,
    token: str,
    body: bytes = b"joined",
    topic: str = "orders",
    type: str = "TRANSACTION",
    **given: Any,
) -> Code:
    """Send a message with a token; return what became of it."""
    (entry,) = client.send(message(topic, body, type, properties={JOINS: token, "size": "7"}, **given)).entries
    return Code(entry.status.code)


def bodies(client: RawClient, topic: str = "orders") -> list[bytes]:
    return sorted(each.body for each in client.messages("readers", topic, wait=2))


@pytest.mark.parametrize("own", [[], [b"own"]], ids=["with nothing of its own", "with a message of its own"])
def test_it_is_visible_with_the_transaction(broker: Broker, client: RawClient, own: list[bytes]) -> None:
    with broker.producer("shop").transaction() as tx:
        for each in own:
            tx.send("orders", each)
        for number in range(3):
            assert joining(client, tx.token(), b"joined %d" % number) is Code.OK
        assert bodies(client) == []
    assert bodies(client) == [b"joined 0", b"joined 1", b"joined 2", *own]


def test_it_does_not_have_the_token(broker: Broker, client: RawClient) -> None:
    with broker.producer("shop").transaction() as tx:
        assert joining(client, tx.token()) is Code.OK
    (got,) = client.messages("readers", "orders")
    assert dict(got.user_properties) == {"size": "7", "__transactionId__": broker.identity.transaction(tx.txid or 0)}


def test_it_is_never_visible_if_the_transaction_is_rolled_back(broker: Broker, client: RawClient) -> None:
    with pytest.raises(LookupError), broker.producer("shop").transaction() as tx:
        assert joining(client, tx.token()) is Code.OK
        raise LookupError
    assert bodies(client) == []


def test_messages_of_one_group_stay_in_order(broker: Broker, client: RawClient) -> None:
    with broker.producer("shop").transaction() as tx:
        for number in range(5):
            given = {"message_group": "a"}
            assert joining(client, tx.token(), b"%d" % number, "lines", type="FIFO", **given) is Code.OK
    assert [each.body for each in client.messages("readers", "lines")] == [b"%d" % number for number in range(5)]


def test_a_send_that_is_repeated_is_stored_once(broker: Broker, client: RawClient) -> None:
    with broker.producer("shop").transaction() as tx:
        for _ in range(3):
            assert joining(client, tx.token(), b"once", id="0102") is Code.OK
        assert joining(client, tx.token(), b"once", id="0103") is Code.OK  # another message
    assert bodies(client) == [b"once", b"once"]


def test_messages_of_one_call_stay_in_order(broker: Broker, client: RawClient) -> None:
    with broker.producer("shop").transaction() as tx:
        sent = [
            message("lines", b"%d" % number, "FIFO", message_group="a", properties={JOINS: tx.token()})
            for number in range(8)
        ]
        answer = client.send(*sent)
        assert {Code(each.status.code) for each in answer.entries} == {Code.OK}
    assert [each.body for each in client.messages("readers", "lines")] == [b"%d" % number for number in range(8)]


def test_the_client_does_not_decide(broker: Broker, client: RawClient) -> None:
    with broker.producer("shop").transaction() as tx:
        (entry,) = client.send(message("orders", type="TRANSACTION", properties={JOINS: tx.token()})).entries
        assert Code(client.end(entry.transaction_id, "COMMIT").status.code) is Code.INVALID_TRANSACTION_ID
        assert bodies(client) == []
    assert bodies(client) == [b"hello"]


def test_who_was_superseded_adds_nothing(broker: Broker, client: RawClient) -> None:
    with pytest.raises(DecidedOtherwise), Elsewhere(broker.producer("shop").transaction(key="monday")) as lost:
        assert joining(client, lost.token(), b"lost") is Code.OK
        with broker.producer("shop").transaction(key="monday") as tx:
            assert joining(client, tx.token(), b"counts") is Code.OK
            assert joining(client, lost.token(), b"late") is Code.PRECONDITION_FAILED
    assert bodies(client) == [b"counts"]


def test_it_joins_the_attempt_of_a_step_and_not_one_that_was_given_up(broker: Broker, client: RawClient) -> None:
    flow = broker.producer("shop").begin_flow(key="monday")
    with pytest.raises(LookupError), flow.step("load"):
        lost = flow.token()
        assert joining(client, lost, b"lost") is Code.OK
        raise LookupError
    with flow.step("load"):
        assert joining(client, lost, b"late") is Code.PRECONDITION_FAILED
        assert joining(client, flow.token(), b"counts") is Code.OK
        ended = flow.token()
    assert joining(client, ended, b"after the step") is Code.PRECONDITION_FAILED
    flow.end()
    assert bodies(client) == [b"counts"]


def test_a_token_that_is_not_good_is_refused(broker: Broker, client: RawClient) -> None:
    with broker.producer("shop").transaction() as tx:
        token = tx.token()
        changed = token[:-1] + "7"
        assert joining(client, "nonsense") is Code.INVALID_TRANSACTION_ID
        assert joining(client, changed) is Code.INVALID_TRANSACTION_ID
        assert joining(client, token, type="NORMAL", topic="news") is Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert joining(client, token) is Code.PRECONDITION_FAILED  # it is committed
    assert bodies(client) == []


def test_a_message_of_the_official_client_joins(broker: Broker, gateway: str, client: RawClient) -> None:
    with broker.producer("shop").transaction() as tx:
        command = [sys.executable, "-W", "ignore", str(PROGRAM), gateway, tx.token()]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stderr[-2000:]
        assert bodies(client) == []
    assert bodies(client) == [b"an order"]
