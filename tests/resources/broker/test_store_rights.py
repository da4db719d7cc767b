"""A broker votes for whoever may produce there, and for nobody else's coordinator."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from tests.scene.stored import Stored
from tests.store.logins import Logins
from tests.store.opened_as import (  # noqa: F401  # fixtures
    Open,
    engine,
    made,
    open_as,
    operator,
    run_roles,
)
from txsaga import Broker
from txsaga.checkback.by_hand import ByHand
from txsaga.core.decision import Decision
from txsaga.core.identity import StoreId
from txsaga.errors import ConfigError, RightsMissing, TxSagaError
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.resources.broker import BrokerWork, StoreParticipant
from txsaga.resources.participant import EnlistedBranch
from txsaga.store.right import Right

pytestmark = pytest.mark.postgres


def named() -> BranchId:
    return BranchId(StoreId(uuid4(), 1).transaction(7), 1)


def sent(participant: StoreParticipant, branch: BranchId) -> EnlistedBranch:
    enlisted = participant.enlist(branch)
    assert isinstance(enlisted.handle, BrokerWork)
    enlisted.handle.send("orders", b"one")
    return enlisted


@pytest.mark.parametrize("decision", list(Decision))
def test_a_producer_right_is_enough(operator: Broker, engine: Broker, open_as: Open, decision: Decision) -> None:  # noqa: F811
    participant = StoreParticipant(open_as(Right.PRODUCER), name="shop")
    participant.probe()
    branch = named()
    enlisted = sent(participant, branch)
    assert enlisted.prepare()() is Vote.PREPARED
    assert list(participant.prepared(branch.store)) == [branch]
    assert enlisted.finish(decision)() is Finish.DONE
    assert participant.finish(branch, decision) is Finish.DONE
    assert participant.guests() == []
    run_roles(engine)
    (qid,) = engine.kernel.store.registry.topic("orders").qids
    assert engine.kernel.store.log.bounds([qid])[qid].head == (1 if decision is Decision.COMMIT else 0)


def test_without_it_a_broker_is_refused_before_any_work(operator: Broker, open_as: Open) -> None:  # noqa: F811
    with pytest.raises(ConfigError, match="producer right"):
        StoreParticipant(open_as(Right.CONSUMER), name="shop").probe()


@pytest.mark.rule("R15")
def test_the_engine_rolls_back_who_went_silent_and_leaves_who_voted(
    operator: Broker,  # noqa: F811
    engine: Broker,  # noqa: F811
    open_as: Open,  # noqa: F811
    home_url: str,
) -> None:
    participant = StoreParticipant(open_as(Right.PRODUCER), name="shop")
    silent, voted = named(), named()
    sent(participant, silent)
    assert sent(participant, voted).prepare()() is Vote.PREPARED
    Stored(home_url).let_pass(timedelta(days=30).total_seconds())
    run_roles(engine)
    assert [guest.gid for _, guest in participant.guests()] == [voted.gid]
    assert participant.finish(silent, Decision.COMMIT) is Finish.ROLLED_BACK
    assert participant.finish(voted, Decision.COMMIT) is Finish.DONE


def test_another_producer_neither_sees_nor_decides_it(operator: Broker, open_as: Open, made: Logins) -> None:  # noqa: F811
    mine = StoreParticipant(open_as(Right.PRODUCER), name="shop")
    theirs = StoreParticipant(open_as(Right.PRODUCER), name="shop")
    branch = named()
    assert sent(mine, branch).prepare()() is Vote.PREPARED
    assert theirs.guests() == []
    for decision in Decision:
        with pytest.raises(RightsMissing, match="coordinator-"):
            theirs.finish(branch, decision)
    assert list(mine.prepared(branch.store)) == [branch]


@pytest.mark.rule("R15")
def test_an_operator_may_force_it_and_the_coordinator_hears_of_that(operator: Broker, open_as: Open) -> None:  # noqa: F811
    participant = StoreParticipant(open_as(Right.PRODUCER), name="shop")
    branch = named()
    assert sent(participant, branch).prepare()() is Vote.PREPARED
    ((_, guest),) = participant.guests()
    ByHand(operator.kernel).decide(guest.txid, Decision.ROLLBACK, who="anna", why="it waits for days", force=True)
    assert participant.finish(branch, Decision.COMMIT) is Finish.ROLLED_BACK
    participant.forget(branch)
    assert participant.guests() == []


def test_only_an_operator_says_which_cluster_a_store_belongs_to(operator: Broker, open_as: Open) -> None:  # noqa: F811
    producer = open_as(Right.PRODUCER)
    with pytest.raises(TxSagaError):
        producer.join_cluster("shop")
    operator.join_cluster("shop")
    assert producer.cluster == "shop"
