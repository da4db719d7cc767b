"""A group that is asked about soon has its work held sooner, and nobody else's."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from tests.scene.members import Member, age
from tests.scene.shop import Shop, order, says
from txsaga import COMMIT, Message
from txsaga.checkback.heartbeat import Heartbeat
from txsaga.checkback.work_in_progress import SOONEST, TYPICAL
from txsaga.core.decision import LocalState
from txsaga.core.role_loop import Pace
from txsaga.rocketmq import TransactionMQProducer

pytestmark = [pytest.mark.req("RMQ-29"), pytest.mark.core]


def pace_with(shop: Shop, *ages: float | None) -> Pace:
    """Return how often the heart beats of a process with groups of these least ages."""
    member = Member(shop)
    for number, least in enumerate(ages):
        group = f"group-{number}"
        if least is not None:
            shop.producer(group)
            shop.broker.set_checks(group, min_age=timedelta(seconds=least))
        member.producer(group)
    return Heartbeat(member.kernel).pace


@pytest.mark.parametrize(
    ("ages", "beat"),
    [
        ((), TYPICAL),
        ((None,), TYPICAL),
        ((6.0, 3600.0), TYPICAL),
        ((None, 3.0, 1.5), 0.5),
        ((0.0,), SOONEST),
    ],
)
def test_the_heart_beats_as_fast_as_the_hastiest_group_here_wants(
    any_shop: Shop, ages: tuple[float | None, ...], beat: float
) -> None:
    assert pace_with(any_shop, *ages) == Pace(beat, beat)


def test_a_group_that_takes_its_haste_back_is_as_patient_as_others_when_it_is_opened_again(any_shop: Shop) -> None:
    member = Member(any_shop)
    any_shop.producer("shop")
    any_shop.broker.set_checks("shop", min_age=timedelta(seconds=1))
    member.producer()
    any_shop.broker.set_checks("shop", min_age=None)
    member.producer()
    assert Heartbeat(member.kernel).pace == Pace(TYPICAL, TYPICAL)


def test_local_work_of_a_hasty_group_is_held_and_not_asked_about(any_shop: Shop) -> None:
    heard: list[object] = []
    any_shop.producer("hasty")
    any_shop.broker.set_checks("hasty", min_age=timedelta(seconds=SOONEST))
    owner, engine = Member(any_shop), Member(any_shop)

    def local(*_: object) -> LocalState:
        time.sleep(1.2 * SOONEST)
        owner.beat()
        age(any_shop, 10)
        owner.beat()
        engine.lead()
        owner.answer()
        return COMMIT

    TransactionMQProducer(owner.broker, "hasty", checker=heard.append).send_message_in_transaction(
        order(), executor=local
    )
    assert heard == []
    assert any_shop.bodies() == ["a chair"]


def test_a_hasty_group_has_nobody_elses_work_held_sooner(any_shop: Shop) -> None:
    any_shop.producer("hasty")
    any_shop.broker.set_checks("hasty", min_age=timedelta(seconds=SOONEST))
    owner = Member(any_shop)
    owner.producer("hasty")

    def local(message: Message, _: object) -> LocalState:
        time.sleep(1.2 * SOONEST)
        owner.beat()
        (txid,) = any_shop.pending()
        assert any_shop.store.overview.checks(txid) is None
        return COMMIT

    TransactionMQProducer(owner.broker, "patient", checker=says(COMMIT)).send_message_in_transaction(
        order(), executor=local
    )
    assert any_shop.bodies() == ["a chair"]
