"""What a loop does with messages that wait for their turn, and how a reader waits for messages."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta
from threading import Event, Thread
from types import SimpleNamespace

import pytest

from tests.contracts.samples import PATIENCE
from tests.scene.shop import Shop
from tests.scene.worker import GROUP, bodies, worker, wrote
from txsaga.consume import consumer as consuming
from txsaga.consume import delivery as handing
from txsaga.consume.claim import Claim
from txsaga.consume.delivery import Delivery, by_claim
from txsaga.errors import StoreUnavailable

HALF_A_MINUTE = timedelta(seconds=30)


class Watch:
    """A clock of the process that goes with the store's."""

    def __init__(self, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        self._shop, self._now = shop, 0.0
        monkeypatch.setattr(handing, "time", SimpleNamespace(monotonic=lambda: self._now))

    def passes(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds
        self._shop.later(seconds)


def test_what_waits_for_its_turn_is_held_for_longer(moody_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    watch, worked = Watch(moody_shop, monkeypatch), list[str]()
    wrote(moody_shop, "a", "b", "c")
    with worker(moody_shop, invisible=HALF_A_MINUTE) as consumer:
        for message in consumer.messages(wait=0):
            with message:
                worked.append(message.text())
                watch.passes(20.0)
    assert worked == ["a", "b", "c"]
    watch.passes(60.0)
    assert bodies(moody_shop) == []


def test_what_waits_stays_while_the_store_is_away(
    moody_shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watch, worked = Watch(moody_shop, monkeypatch), list[str]()
    wrote(moody_shop, "a", "b")
    (sent,) = {message.id for message in moody_shop.read("news")[1:]}

    def away(*_: object) -> None:
        raise StoreUnavailable("nobody is there")

    with worker(moody_shop, invisible=HALF_A_MINUTE) as consumer, monkeypatch.context() as patch:
        patch.setattr(moody_shop.store.claims, "extend", away)
        for message in consumer.messages(wait=0):
            with message:
                worked.append(message.text())
                watch.passes(16.0 if len(worked) == 1 else 1.0)
    assert worked == ["a", "b"]
    (told,) = [record for record in caplog.records if "could not be extended" in record.message]
    assert (vars(told)["group"], vars(told)["message_id"]) == (GROUP, sent)


def test_a_consumer_may_be_closed_while_what_waits_is_held_for_longer(
    moody_shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, worked = Watch(moody_shop, monkeypatch), list[str]()
    wrote(moody_shop, "a", "b", "c")

    def elsewhere(messages: Iterable[Delivery]) -> list[tuple[Claim, list[Delivery]]]:
        looking = iter(messages)
        first = next(looking)
        monkeypatch.setattr(handing, "by_claim", by_claim)
        consumer.close()  # as another thread would
        return by_claim([first, *looking])

    monkeypatch.setattr(handing, "by_claim", elsewhere)
    with worker(moody_shop, invisible=HALF_A_MINUTE) as consumer:
        for message in consumer.messages(wait=0):
            with message:
                worked.append(message.text())
                watch.passes(16.0)
    assert worked == ["a"]


def test_a_tick_wakes_whoever_waits_for_messages(moody_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consuming, "IDLE", 10 * PATIENCE)
    waits, found, wait = Event(), list[str](), moody_shop.store.log.wait

    def heard(seconds: float) -> bool:
        waits.set()
        return wait(seconds)

    monkeypatch.setattr(moody_shop.store.log, "wait", heard)
    consumer = worker(moody_shop)
    reader = Thread(
        target=lambda: found.extend(each.text() for each in consumer.receive(wait=20 * PATIENCE)), daemon=True
    )
    reader.start()
    assert waits.wait(PATIENCE)
    wrote(moody_shop, "a")
    reader.join(PATIENCE)
    assert found == ["a"]


def test_every_line_about_a_message_names_its_group_and_its_id(
    moody_shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    moody_shop.broker.create_topic("failed", "normal", queues=1)
    moody_shop.broker.create_group(GROUP, max_attempts=1, backout="failed")
    wrote(moody_shop, "a", "b", "c")
    ids = [message.id for message in moody_shop.read("news")]
    gone, late, lost = (worker(moody_shop, invisible=HALF_A_MINUTE).receive()[0] for _ in ids)
    with gone:
        raise ValueError("broken")
    moody_shop.later(31.0)
    with late:
        raise ValueError("too late")
    moody_shop.broker.alter_group(GROUP, backout=None, dead_letters=False)
    assert bodies(moody_shop) == []  # both were delivered once
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING and ids_in(record, ids)]
    assert len(lines) >= 5
    for line in lines:
        assert vars(line)["group"] == GROUP
        assert ids_in(line, ids) == [vars(line)["message_id"]]
    assert lost.id in {vars(line)["message_id"] for line in lines}


def ids_in(record: logging.LogRecord, ids: list[str]) -> list[str]:
    """Return the ids that a line speaks of."""
    return [each for each in ids if each in record.getMessage()]
