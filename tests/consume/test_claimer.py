"""What a consumer takes next: neither what is new nor what comes again waits for ever."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from tests.scene.shop import NEWS, Shop
from tests.scene.worker import GROUP, worker, wrote
from txsaga.consume.claim import Unread
from txsaga.consume.consumer import Consumer

AT_ONCE = timedelta(0)


@pytest.fixture(autouse=True, params=[0.0, 1_000.0])
def look_again(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let members look at what came back each time, or hardly ever while there is something new."""
    monkeypatch.setattr("txsaga.consume.consumer.LOOK_AGAIN", request.param)


def turns(shop: Shop, consumer: Consumer, count: int) -> list[str]:
    """Take so many messages one by one, acknowledging all but those that are broken."""
    seen = []
    for _ in range(count):
        shop.later(0.01)
        for message in consumer.receive(1):
            seen.append(message.text())
            if message.text().startswith("broken"):
                message.nack(delay=AT_ONCE)
            else:
                message.ack()
    return seen


@pytest.mark.parametrize("ordered", [False, True])
def test_what_comes_again_at_once_does_not_hold_up_what_is_new(moody_shop: Shop, ordered: bool) -> None:
    moody_shop.broker.create_group(GROUP, ordered=ordered, max_attempts=None)
    wrote(moody_shop, "broken", key="x")
    consumer = worker(moody_shop)
    assert turns(moody_shop, consumer, 2) == ["broken", "broken"]
    for text in ("a", "b", "c"):
        wrote(moody_shop, text, key=text)
    assert [text for text in turns(moody_shop, consumer, 8) if text != "broken"] == ["a", "b", "c"]


def test_what_comes_again_takes_turns_with_what_is_new(moody_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txsaga.consume.consumer.LOOK_AGAIN", 0.0)
    moody_shop.broker.create_group(GROUP, max_attempts=None)
    wrote(moody_shop, "broken")
    consumer = worker(moody_shop)
    assert turns(moody_shop, consumer, 2) == ["broken"] * 2
    wrote(moody_shop, *map(str, range(20)))
    seen = turns(moody_shop, consumer, 20)
    assert 8 <= seen.count("broken") <= 12
    assert [text for text in seen if text != "broken"] == [*map(str, range(20 - seen.count("broken")))]


def test_many_that_come_again_take_turns(moody_shop: Shop) -> None:
    moody_shop.broker.create_group(GROUP, max_attempts=None)
    wrote(moody_shop, "broken 1", "broken 2", "broken 3")
    consumer = worker(moody_shop)
    seen = turns(moody_shop, consumer, 30)
    assert all(9 <= seen.count(f"broken {n}") <= 11 for n in (1, 2, 3))


@pytest.mark.req("RMQ-63")
def test_neighbours_of_a_key_that_rests_go_on_with_a_thousand_behind_it(moody_shop: Shop) -> None:
    moody_shop.broker.create_group(GROUP, ordered=True)
    moody_shop.broker.producer("desk").send_many(NEWS, [b"x"] * 1_000 + [b"y"], keys=["x"] * 1_000 + ["y"])
    moody_shop.deliver()
    consumer = worker(moody_shop)
    (first,) = consumer.receive()
    first.nack("broken", delay=timedelta(hours=1))
    found = next(found for found in (consumer.receive() for _ in range(20)) if found)
    assert [message.text() for message in found] == ["y"]


@pytest.mark.parametrize(("count", "most"), [(1, 2), (32, 4)])
def test_a_line_is_no_longer_than_what_is_asked_for(
    moody_shop: Shop, monkeypatch: pytest.MonkeyPatch, count: int, most: int
) -> None:
    moody_shop.broker.create_group(GROUP, ordered=True)
    moody_shop.broker.producer("desk").send_many(NEWS, [b"x"] * 640, keys=[f"k{n}" for n in range(640)])
    moody_shop.deliver()
    consumer, lined, line_up = worker(moody_shop), list[object](), moody_shop.store.claims.line_up

    def counted(group: str, found: Unread, keys: Sequence[int | None]) -> bool:
        lined.append(found)
        return line_up(group, found, keys)

    monkeypatch.setattr(moody_shop.store.claims, "line_up", counted)
    done = 0
    while done < 128:
        messages = consumer.receive(count)
        consumer.ack(messages)
        done += len(messages)
    assert len(lined) <= most
