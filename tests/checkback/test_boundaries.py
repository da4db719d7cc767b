"""When a half is asked about: from its age on and not before, by the store's clock, to the millisecond."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest

from tests.scene.members import QUICK, Member, age, checks, counted, cover
from tests.scene.shop import ORDERS, Shop, says
from tests.scene.stored import Stored
from txsaga import COMMIT, UNKNOWN, LocalState
from txsaga.checkback.checkers import Question
from txsaga.checkback.profile import PROFILES, CheckProfile
from txsaga.errors import ConfigError, InvalidMessage
from txsaga.testing.checking import check_once

CLASSIC = PROFILES["classic"]


@pytest.mark.req("RMQ-29")
@pytest.mark.parametrize(("seconds", "asked"), [(2, 0), (4, 0), (7, 1)])
def test_a_half_is_asked_about_from_its_minimum_age_on(any_shop: Shop, seconds: float, asked: int) -> None:
    heard: list[object] = []
    any_shop.producer(checker=heard.append).prepare_now(ORDERS, b"")
    cover(any_shop)
    any_shop.later(seconds - 1)
    check_once(any_shop.broker)
    assert len(heard) == asked


@pytest.mark.req("RMQ-29", "RMQ-84")
@pytest.mark.parametrize(("immunity", "due"), [(None, 6.0), (6, 6.0), (30, 30.0)])
def test_at_the_very_millisecond_it_is_asked_and_one_before_it_is_not(
    moody_shop: Shop, immunity: int | None, due: float
) -> None:
    heard: list[object] = []
    moody_shop.producer(checker=heard.append).prepare(ORDERS, b"", immunity=immunity).result(10)
    moody_shop.later(due - 0.001)
    check_once(moody_shop.broker)
    assert heard == []
    moody_shop.later(0.001)
    check_once(moody_shop.broker)
    assert len(heard) == 1


@pytest.mark.req("RMQ-28")
@pytest.mark.parametrize(("profile", "seconds"), [("classic", 60), ("5x", 30)])
def test_the_next_check_comes_after_the_interval(any_shop: Shop, profile: str, seconds: int) -> None:
    heard: list[object] = []
    any_shop.producer(checker=heard.append).prepare_now(ORDERS, b"")
    age(any_shop, 10)
    seen = []
    for pause in (0, seconds - 2, 3, seconds - 2, 3):
        any_shop.later(pause)
        check_once(any_shop.broker, PROFILES[profile])
        seen.append(len(heard))
    assert seen == [1, 1, 2, 2, 3]


@pytest.mark.req("RMQ-28", "RMQ-29", "RMQ-26")
def test_a_group_may_say_its_own_times_and_take_them_back(any_shop: Shop) -> None:
    heard: list[str] = []

    def checker(question: Question) -> None:
        heard.append(question.group)

    quick, slow = (any_shop.producer(group, checker=checker) for group in ("quick", "slow"))
    any_shop.broker.set_checks("quick", min_age=timedelta(seconds=1), interval=timedelta(seconds=5), max_checks=2)
    any_shop.broker.set_checks("slow", min_age=timedelta(minutes=5))
    first = quick.prepare_now(ORDERS, b"")
    slow.prepare_now(ORDERS, b"")
    cover(any_shop)
    seen = []
    for pause in (2, 6, 6, 10, 300):
        any_shop.later(pause)
        check_once(any_shop.broker)
        seen.append("".join(name[0] for name in heard))
    assert seen == ["q", "qq", "qq", "qq", "qqs"]
    assert any_shop.state(first.txid) == "parked"
    any_shop.broker.set_checks("quick", min_age=None, interval=None, max_checks=None)
    assert any_shop.store.registry.find_group("quick").checks == {}  # type: ignore[union-attr]  # it is there


@pytest.mark.parametrize("changes", [{"intervall": 5}, {"interval": timedelta(0) - timedelta(1)}, {"max_checks": 0}])
def test_a_setting_that_is_none_is_refused(moody_shop: Shop, changes: dict[str, Any]) -> None:
    moody_shop.producer()
    with pytest.raises(ConfigError):
        moody_shop.broker.set_checks("shop", **changes)


@pytest.mark.req("RMQ-83")
@pytest.mark.hole("H4")
def test_an_immunity_that_outlives_all_checks_is_warned_about_and_checked_all_the_same(
    any_shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[object] = []
    producer = any_shop.producer(checker=heard.append)
    with caplog.at_level(logging.WARNING, "txsaga"):
        receipt = producer.prepare(ORDERS, b"", immunity=1000).result(10)
    assert "immunity 1000 s is longer than max_checks x interval (15 x 60 s = 900 s)" in caplog.text
    cover(any_shop)
    for _ in range(16):
        any_shop.later(61)
        check_once(any_shop.broker)
    assert heard == []
    for _ in range(20):
        any_shop.later(61)
        check_once(any_shop.broker)
    assert (len(heard), any_shop.state(receipt.txid)) == (15, "parked")


@pytest.mark.req("RMQ-83")
@pytest.mark.conf("PRX-19")
def test_an_immunity_beyond_the_total_limit_is_refused(any_shop: Shop) -> None:
    producer = any_shop.producer()
    with pytest.raises(InvalidMessage, match="would never be checked"):
        producer.prepare(ORDERS, b"", immunity=72 * 3600 + 1)
    any_shop.broker.set_checks("shop", total_limit=timedelta(hours=1))
    fresh = Member(any_shop).producer()
    with pytest.raises(InvalidMessage, match="gives a transaction up after 3600"):
        fresh.prepare(ORDERS, b"", immunity=7200)
    assert list(any_shop.listed()) == []


@pytest.mark.req("RMQ-82")
def test_what_is_stored_while_a_round_runs_waits_for_the_next(any_shop: Shop) -> None:
    heard: list[int] = []
    producer = any_shop.producer()

    def checker(question: Question) -> LocalState:
        heard.append(question.txid)
        if len(heard) == 1:
            producer.prepare_now(ORDERS, b"late")
            age(any_shop)
        return COMMIT

    any_shop.broker.kernel.checkers.register(producer.group, checker)
    producer.prepare_now(ORDERS, b"early")
    age(any_shop)
    check_once(any_shop.broker, QUICK)
    assert len(heard) == 1
    check_once(any_shop.broker, QUICK)
    assert len(heard) == 2


@pytest.mark.req("RMQ-82")
def test_a_round_has_its_time_and_what_is_not_reached_is_not_counted(
    any_shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[object] = []
    receipt = any_shop.producer(checker=heard.append).prepare_now(ORDERS, b"")
    age(any_shop)
    monkeypatch.setattr("txsaga.checkback.round.BUDGET", -1.0)
    check_once(any_shop.broker, QUICK)
    assert (heard, counted(any_shop, receipt.txid)) == ([], 0)
    monkeypatch.undo()
    check_once(any_shop.broker, QUICK)
    assert (len(heard), counted(any_shop, receipt.txid)) == (1, 1)


@pytest.mark.req("RMQ-82", "RMQ-67")
def test_what_is_older_than_its_total_time_is_parked_without_a_question(any_shop: Shop) -> None:
    heard: list[object] = []
    receipt = any_shop.producer(checker=heard.append).prepare_now(ORDERS, b"a chair")
    age(any_shop, 73 * 3600)
    check_once(any_shop.broker)
    assert (heard, any_shop.state(receipt.txid)) == ([], "parked")
    assert (checks(any_shop, receipt.txid).parked or "").startswith("not decided within 3 days")


@pytest.mark.req("RMQ-29")
@pytest.mark.hole("H7")
def test_the_clock_of_a_client_says_nothing(shop: Shop, stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere the age is counted from what the client says: one ahead of the broker is asked about at once."""
    heard: list[object] = []
    producer = shop.producer(checker=heard.append)
    monkeypatch.setattr("time.time", lambda: 4e9)  # a client in the year 2096
    headers = {"__BORNTIMESTAMP": "0", "born": "4000000000"}
    producer.prepare(ORDERS, b"", headers=headers).result(10)
    cover(shop)
    stored.let_pass(4)
    check_once(shop.broker)
    assert heard == []
    monkeypatch.setattr("time.time", lambda: 0.0)
    stored.let_pass(2)
    check_once(shop.broker)
    assert len(heard) == 1


@pytest.mark.req("RMQ-96")
def test_the_profiles_are_those_of_the_releases() -> None:
    assert (CLASSIC.interval, CLASSIC.min_age, CLASSIC.max_checks) == (timedelta(seconds=60), timedelta(seconds=6), 15)
    assert (CLASSIC.reply_timeout, CLASSIC.on_exhausted) == (timedelta(seconds=3), "park")
    assert PROFILES["5x"] == CheckProfile(interval=timedelta(seconds=30))
    assert CheckProfile() == CLASSIC


@pytest.mark.req("RMQ-74", "RMQ-73")
def test_an_immunity_is_the_same_for_the_end_and_for_the_check(any_shop: Shop) -> None:
    """Elsewhere only the end raises what is shorter than the minimum age."""
    heard: list[object] = []
    producer = any_shop.producer(checker=heard.append)
    receipt = producer.prepare(ORDERS, b"", immunity=1).result(10)
    cover(any_shop)
    any_shop.later(2)
    check_once(any_shop.broker)
    assert heard == []
    assert producer.commit(receipt).won
    assert says(UNKNOWN)() is UNKNOWN
