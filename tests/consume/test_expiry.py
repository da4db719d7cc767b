"""Groups that nobody is seen in: who keeps one alive, and who is told that it is gone."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from tests.scene.shop import NEWS, Shop
from tests.scene.worker import GROUP, told, worker, wrote
from txsaga.consume import consumer
from txsaga.consume.dispatcher import PartitionRole
from txsaga.errors import ConfigError, StoreError, UnknownGroup

pytestmark = pytest.mark.rule("R13")

MONTH = timedelta(days=30)
LONGER = MONTH.total_seconds() + 1


@pytest.fixture(autouse=True)
def follows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "POLICY", -1.0)


def test_the_role_forgets_a_group_after_a_month_and_says_so(moody_shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    worker(moody_shop).close()
    role = PartitionRole(moody_shop.broker.kernel)
    moody_shop.later(LONGER - 2)
    role.run_once()
    assert moody_shop.store.groups.find(GROUP) is not None
    moody_shop.later(2)
    assert role.run_once() == 1
    assert moody_shop.store.groups.find(GROUP) is None
    assert told(caplog, logging.WARNING, f"group {GROUP} expired")
    assert role.run_once() == 0


def test_a_consumer_that_looks_for_messages_keeps_its_group(moody_shop: Shop) -> None:
    member = worker(moody_shop)
    moody_shop.later(LONGER)
    assert member.receive() == []
    assert PartitionRole(moody_shop.broker.kernel).run_once() == 0


class Broken:
    """Groups of which one can't be dealt with, and a log that notes what was asked of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def expire(self) -> list[str]:
        raise StoreError("interval out of range")

    def extend_partitions(self, _: int) -> int:
        self.asked.append("extend")
        return 1

    def drop_partitions(self) -> int:
        self.asked.append("drop")
        return 0


def test_groups_that_cannot_expire_keep_the_numbers_in_room(moody_shop: Shop) -> None:
    role, broken = PartitionRole(moody_shop.broker.kernel), Broken()
    role._groups = role._log = broken  # type: ignore[assignment]
    with pytest.raises(StoreError, match="interval out of range"):
        role.run_once()
    assert broken.asked == ["extend", "drop"]


def test_a_consumer_whose_group_expired_is_told(moody_shop: Shop) -> None:
    member = worker(moody_shop)
    moody_shop.later(LONGER)
    PartitionRole(moody_shop.broker.kernel).run_once()
    with pytest.raises(UnknownGroup, match=GROUP):
        member.receive()
    wrote(moody_shop, "a")
    assert [message.text() for message in worker(moody_shop).receive()] == ["a"]


def test_a_stream_keeps_its_group_and_is_told_when_it_is_gone(
    moody_shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = PartitionRole(moody_shop.broker.kernel)
    asleep = moody_shop.broker.stream(GROUP, [NEWS])
    moody_shop.later(LONGER)
    asleep.poll()
    assert role.run_once() == 0
    moody_shop.later(LONGER)
    assert role.run_once() == 1
    monkeypatch.setattr(asleep._membership, "_renew_at", 0.0)
    with pytest.raises(UnknownGroup, match=GROUP):
        asleep.poll()


def test_a_group_may_expire_sooner_or_never(moody_shop: Shop) -> None:
    group = moody_shop.broker.create_group(GROUP, expires=timedelta(hours=1))
    assert group.policy.expires == timedelta(hours=1)
    assert moody_shop.broker.alter_group(GROUP, expires=None).policy.expires is None
    moody_shop.later(12 * LONGER)
    assert PartitionRole(moody_shop.broker.kernel).run_once() == 0


@pytest.mark.parametrize("expires", [timedelta(minutes=9), timedelta(days=36_501), 3600])
def test_a_time_that_no_member_could_keep_is_refused(moody_shop: Shop, expires: object) -> None:
    with pytest.raises(ConfigError, match="from 10 minutes on"):
        moody_shop.broker.create_group(GROUP, expires=expires)  # type: ignore[arg-type]
