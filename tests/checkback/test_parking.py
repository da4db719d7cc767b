"""A settlement that keeps failing is repeated up to the maximum, then parked and listed: never stuck in silence."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scene.fake_store import FakeHalves, FakeStore, broker_on
from tests.scene.shop import ORDERS, Shop, closing, says
from tests.scene.stored import Stored
from txsaga import COMMIT, ROLLBACK, LocalState
from txsaga.errors import StoreError
from txsaga.wiring.connecting import open_store

MOST = 3


@pytest.fixture
def home_shop(home_url: str, stored: Stored) -> Iterator[Shop]:
    """Give a shop on the home database behind a store with moods."""
    with closing(Shop(broker_on(FakeStore(open_store(home_url))), stored.let_pass)) as shop:
        yield shop


def moods(shop: Shop) -> FakeHalves:
    assert isinstance(shop.store.halves, FakeHalves)
    return shop.store.halves


@pytest.mark.req("RMQ-57")
@pytest.mark.parametrize("answer", [COMMIT, ROLLBACK])
def test_a_settlement_that_keeps_failing_is_parked_and_listed(
    home_shop: Shop, caplog: pytest.LogCaptureFixture, answer: LocalState
) -> None:
    receipt = home_shop.producer(checker=says(answer)).prepare_now(ORDERS, b"a chair")
    moods(home_shop).broken.extend([StoreError("the disk is full")] * 100)
    tries = []
    for _ in range(MOST + 2):
        assert home_shop.check(MOST) == 0
        tries.append((len(moods(home_shop).ends), home_shop.state(receipt.txid)))
    assert tries == [(1, "prepared"), (2, "prepared"), (3, "prepared"), (3, "parked"), (3, "parked")]
    assert home_shop.pending() == [receipt.txid]
    errors = [r.message for r in caplog.records if r.levelname == "ERROR" and "parked" in r.message]
    assert len(errors) == 1
    assert "the disk is full" in errors[0] and str(receipt.txid) in errors[0]
    moods(home_shop).broken.clear()
    assert home_shop.bodies() == []


@pytest.mark.req("RMQ-57")
def test_a_settlement_that_succeeds_in_time_is_no_longer_repeated(home_shop: Shop) -> None:
    home_shop.producer(checker=says(COMMIT)).prepare_now(ORDERS, b"a chair")
    moods(home_shop).broken.extend([StoreError("the disk is full")] * (MOST - 1))
    assert [home_shop.check(MOST) for _ in range(MOST + 1)] == [0, 0, 1, 0]
    assert len(moods(home_shop).ends) == MOST
    assert (home_shop.bodies(), home_shop.pending()) == (["a chair"], [])


@pytest.mark.req("RMQ-57")
def test_a_settlement_that_fails_holds_up_no_other(home_shop: Shop) -> None:
    producer = home_shop.producer(checker=says(COMMIT))
    sick, *_ = [producer.prepare_now(ORDERS, str(n).encode(), key="one queue").txid for n in range(3)]
    moods(home_shop).sick.add(sick)
    assert home_shop.check(MOST) == 2
    moods(home_shop).sick.clear()
    assert home_shop.check(MOST) == 1
    assert sorted(home_shop.bodies()) == ["0", "1", "2"]


@pytest.mark.req("RMQ-57")
def test_a_parked_half_can_still_be_decided_by_its_producer(home_shop: Shop) -> None:
    producer = home_shop.producer(checker=says(None))
    receipt = producer.prepare_now(ORDERS, b"a chair")
    for _ in range(MOST + 1):
        home_shop.check(MOST)
    assert home_shop.state(receipt.txid) == "parked"
    assert producer.commit(receipt).won
    assert (home_shop.state(receipt.txid), home_shop.bodies()) == ("committed", ["a chair"])


@pytest.mark.req("RMQ-85")
def test_a_check_that_nobody_was_there_to_answer_does_not_count(moody_shop: Shop) -> None:
    receipt = moody_shop.producer(checker=says(COMMIT)).prepare_now(ORDERS, b"a chair")
    elsewhere = Shop(broker_on(moody_shop.store), moody_shop.later)  # a process without the group's checker
    for _ in range(MOST + 2):
        assert elsewhere.check(MOST) == 0
    checks = moody_shop.store.overview.checks(receipt.txid)
    assert checks is not None
    assert (checks.asked, checks.parked, moody_shop.state(receipt.txid)) == (0, None, "prepared")
    assert moody_shop.check(MOST) == 1
    assert moody_shop.bodies() == ["a chair"]


@pytest.mark.req("RMQ-27")
def test_a_parked_half_says_what_was_answered_last(moody_shop: Shop) -> None:
    receipt = moody_shop.producer(checker=says(None)).prepare_now(ORDERS, b"a chair")
    assert (moody_shop.check(1), moody_shop.check(1)) == (0, 0)
    checks = moody_shop.store.overview.checks(receipt.txid)
    assert checks is not None
    assert checks.parked == "out of checks (1): the checker said UNKNOWN"
