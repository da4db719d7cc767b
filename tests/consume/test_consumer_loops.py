"""What a loop over messages outlives, and what counts as done: late, twice, in a child, while the store is away."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from datetime import timedelta

import pytest

from tests.scene.shop import Shop
from tests.scene.worker import GROUP, bodies, told, worker, wrote
from txsaga.consume.claim import Policy
from txsaga.errors import AlreadyCommitted, AlreadyDone, ClaimLost, ConfigError, StoreUnavailable

HALF_A_MINUTE = timedelta(seconds=30)


def test_the_same_message_twice_acknowledges_no_other(moody_shop: Shop) -> None:
    wrote(moody_shop, "a", "b", "c")
    consumer = worker(moody_shop)
    one, *others = consumer.receive()
    consumer.ack([one, one])
    for message in others:
        message.ack()  # nobody else has done it


def test_a_block_that_is_left_behind_its_loop_is_told_that_it_is_late(moody_shop: Shop) -> None:
    wrote(moody_shop, "a", "b")
    one, two = list(worker(moody_shop, invisible=HALF_A_MINUTE).messages(wait=0))
    with one:
        pass
    moody_shop.later(31.0)
    with pytest.raises(ClaimLost), two:
        pass
    assert bodies(moody_shop) == [two.text()]


def test_a_loop_outlives_a_message_that_was_too_late(moody_shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    wrote(moody_shop, "a", "b")
    worked = []
    for message in worker(moody_shop, batch=1, invisible=HALF_A_MINUTE).messages(wait=0):
        with message:
            worked.append(message.text())
            if len(worked) == 1:
                moody_shop.later(31.0)
        if len(worked) == 3:
            break
    assert sorted(worked) == sorted(["a", "b", worked[0]])
    assert told(caplog, logging.WARNING, "is redelivered")


def test_a_loop_outlives_a_store_that_can_not_take_a_message_back(
    moody_shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wrote(moody_shop, "a", "b")

    def away(*_: object) -> None:
        raise StoreUnavailable("nobody is there")

    monkeypatch.setattr(moody_shop.store.claims, "put_back", away)
    worked = []
    for message in worker(moody_shop).messages(wait=0):
        with message:
            worked.append(message.text())
            raise ValueError("broken")
    assert sorted(worked) == ["a", "b"]
    assert told(caplog, logging.WARNING, "could not be put back")


def test_what_another_inbox_knows_is_no_success(moody_shop: Shop) -> None:
    wrote(moody_shop, "a")
    (message,) = worker(moody_shop).receive()
    with message:
        raise AlreadyDone(message.id, "somebody else")
    moody_shop.later(1.0)
    assert bodies(moody_shop) == ["a"]


def test_a_key_that_is_the_messages_own_says_that_it_is_done(moody_shop: Shop) -> None:
    wrote(moody_shop, "a", "b")
    one, two = worker(moody_shop).receive()
    with one:
        raise AlreadyCommitted(7, one.id)
    with two:
        raise AlreadyCommitted(7, "order-42")
    moody_shop.later(1.0)
    assert bodies(moody_shop) == [two.text()]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_nothing_of_its_parents_messages(moody_shop: Shop) -> None:
    wrote(moody_shop, "a", "b", "c")
    loop = worker(moody_shop).messages(wait=0)
    message = next(loop)
    child = os.fork()
    if not child:
        try:
            with suppress(ClaimLost):
                message.ack()
                os._exit(1)
            loop.close()
            os._exit(0)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with message:
        pass
    assert len(list(loop)) == 2


def test_order_is_no_matter_of_opinion(moody_shop: Shop) -> None:
    moody_shop.broker.create_group(GROUP)
    with pytest.raises(ConfigError, match="does not keep the order"):
        moody_shop.broker.create_group(GROUP, ordered=True)


def test_a_rest_has_an_end_however_often_a_message_came() -> None:
    policy = Policy(first_retry=timedelta(days=1), longest_retry=timedelta(days=1))
    assert policy.retry_in(10_000, 1.2) == timedelta(days=1)
