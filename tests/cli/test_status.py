"""`txsaga status` through the entry point: the figures are those of the store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

import txsaga
from tests.cli.conftest import Cli
from tests.contracts.samples import park
from tests.scene.stored import Stored
from txsaga.broker import Broker
from txsaga.checkback.heartbeat import Heartbeat
from txsaga.consume.dispatcher import Dispatcher
from txsaga.testing.checking import check_once

pytestmark = pytest.mark.core


@pytest.fixture
def busy(bare: Cli, own_url: str) -> Iterator[Broker]:
    """Give a store with two halves, one of them parked, four messages, and a group that has read one of them."""
    with txsaga.connect(own_url, roles=False, answering=False, env={}) as broker:
        broker.create_topic("news", queues=1)
        broker.create_topic("orders", "transaction", queues=2)
        shop, plain = broker.producer("shop", checker=lambda question: None), broker.producer("plain")
        parked, _ = (shop.prepare_now("orders", body) for body in (b"a", b"b"))
        plain.send_many("news", [b"1", b"2", b"3"])
        Dispatcher(broker.kernel).run_once()
        Stored(own_url).let_pass(60)
        assert broker.kernel.store.doubts.sweep(timedelta(seconds=6)) == 2
        park(broker.kernel.store, parked.txid, "out of checks")
        Heartbeat(broker.kernel).run_once()
        bare("tail", "news", "--group", "readers", "--count", "1", "--url", own_url)
        plain.send("news", b"4")
        yield broker


@pytest.mark.req("BEYOND-6")
def test_the_state_of_a_store_at_a_glance(bare: Cli, busy: Broker, own_url: str) -> None:
    found = bare("status", "--json", "--url", own_url).document
    assert found["store"] == {"uuid": str(busy.identity.uuid), "incarnation": 1}
    assert found["rejects_transactions"] is False
    assert (found["undecided"]["count"], found["undecided"]["parked"]) == (2, 1)
    assert 60 <= found["undecided"]["oldest_seconds"] < 3600
    assert (found["undecided"]["asked"], found["last_round"]) == (0, None)
    (shop,) = found["producers"]
    assert 60 <= shop.pop("oldest_seconds") < 3600
    answers = {"COMMIT": 0, "ROLLBACK": 0, "UNKNOWN": 0, "NO_ANSWER": 0}
    told = {"group": "shop", "undecided": 2, "parked": 1, "asked": 0, "members": 1, "answers": answers}
    assert shop == told
    assert found["dispatcher"]["waiting"] == 1
    assert [(topic["name"], topic["messages"], topic["heads"]) for topic in found["topics"]] == [
        ("news", 3, [3]),
        ("orders", 0, [0, 0]),
    ]
    (group,) = found["groups"]
    queue = {"queue": 0, "tail": 0, "head": 3, "offset": 1, "lowest": 1, "held": 0, "retrying": 0, "lag": 2}
    (found_queue,) = group.pop("queues")
    assert 0 <= found_queue.pop("oldest_seconds") <= group.pop("oldest_seconds") < 60
    assert found_queue == {**queue, "in_line": 0}
    assert group == {"group": "readers", "topic": "news", "lag": 2, "held": 0, "retrying": 0, "members": 0}
    assert found["dead_letters"] == {}


@pytest.mark.req("RMQ-70", "RMQ-30")
def test_who_led_the_last_round_and_what_was_answered_is_told(bare: Cli, busy: Broker, own_url: str) -> None:
    check_once(busy)
    found = bare("status", "--json", "--url", own_url).document
    assert found["last_round"]["leader"] == busy.kernel.member
    assert 0 <= found["last_round"]["ago_seconds"] < 60
    assert found["producers"][0]["answers"]["UNKNOWN"] == 1
    said = bare("status", "--url", own_url)
    assert [line.split()[-4:] for line in said.lines if line.startswith("shop ")] == [["0", "0", "1", "0"]]
    assert f"s ago, led by {busy.kernel.member}" in said.out


def test_people_are_told_the_same(bare: Cli, busy: Broker, own_url: str) -> None:
    said = bare("status", "--url", own_url)
    assert (said.code, said.err) == (0, "")
    told = [tuple(line.split()) for line in said.lines]
    assert ("undecided", "2") in told
    assert ("parked", "1") in told
    assert ("waiting", "for", "a", "tick", "1") in told
    assert ("news", "normal", "1", "3") in told
    assert ("readers", "news", "2", "0", "0", "0") in [line[:6] for line in told]
