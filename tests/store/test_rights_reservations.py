"""Reservations under logins that do not own the store: a producer tries, an engine ends it, nobody else sees it."""

# Fixtures are named where they are asked for.
# ruff: noqa: F811

from __future__ import annotations

import pytest

from tests.resources.callables.tills import Till
from tests.store.opened_as import (  # noqa: F401  # fixtures
    Open,
    engine,
    everything,
    made,
    open_as,
    operator,
)
from txsaga.broker import Broker
from txsaga.core.decision import Decision
from txsaga.errors import ConfigError
from txsaga.flows.branch import BranchId, Finish
from txsaga.store.right import Right

pytestmark = pytest.mark.postgres


def left(broker: Broker, till: Till, *, voted: bool) -> BranchId:
    """Leave a try as a process does that dies behind it."""
    broker.enlist("till", till.callables)
    tx = broker.producer("shop", checker=lambda _: None).coordinated("till").__enter__()
    with tx.on("till") as take:
        take(item=7)
    owner = tx._branches
    if voted:
        owner.work.prepare()
    for key in owner.work.used:
        owner.work.take_out(key)
    owner.leave()
    return BranchId.parse(take.id)


@pytest.mark.parametrize("decision", list(Decision))
def test_an_engine_ends_what_a_producer_tried(open_as: Open, engine: Broker, decision: Decision) -> None:
    till = Till()
    branch = left(open_as(Right.PRODUCER), till, voted=decision is Decision.COMMIT)
    participant = till.callables.participant("till", engine.kernel.store)
    assert participant.finish(branch, decision) is Finish.DONE
    assert till.taken == ({branch.gid: 7} if decision is Decision.COMMIT else {})
    assert not participant.prepared(branch.store)


def test_an_operator_forgets_what_was_tried(open_as: Open, operator: Broker) -> None:
    till = Till()
    branch = left(open_as(Right.PRODUCER), till, voted=True)
    participant = till.callables.participant("till", operator.kernel.store)
    assert list(participant.prepared(branch.store)) == [branch]
    participant.forget(branch)
    assert operator.kernel.store.reservations.find(branch) is None


def test_another_producer_sees_nothing_of_it(open_as: Open, made: object) -> None:
    branch = left(open_as(Right.PRODUCER), Till(), voted=True)
    rival = open_as(Right.PRODUCER)
    assert rival.kernel.store.reservations.find(branch) is None


@pytest.mark.req("IBM-13")
def test_who_may_not_produce_can_not_try(engine: Broker) -> None:
    participant = Till().callables.participant("till", engine.kernel.store)
    with pytest.raises(ConfigError, match="no producer right"):
        participant.probe()
