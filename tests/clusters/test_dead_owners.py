"""An owner that dies in the middle of a cluster's transaction: everything of it is committed or nothing is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.clusters.town import ORDERS, Town
from txsaga.clusters.broker_cluster import BrokerCluster
from txsaga.clusters.producer import ClusterTransaction
from txsaga.core.decision import Decision
from txsaga.flows.branch import BranchState

pytestmark = pytest.mark.postgres

STEPS = ("begun", "sent", "ended", "prepared", "decided")


def died(cluster: BrokerCluster, step: str) -> ClusterTransaction:
    """Run a transaction up to a step, and no further."""
    tx = cluster.producer("shop").transaction()
    tx.__enter__()
    ways: dict[str, Callable[[], object]] = {
        "begun": lambda: None,
        "sent": lambda: tx.send(ORDERS, b"one"),
        "ended": tx.end,
        "prepared": tx.prepare,
        "decided": lambda: decide(tx),
    }
    for name in STEPS[: STEPS.index(step) + 1]:
        ways[name]()
    return tx


def decide(tx: ClusterTransaction) -> None:
    """Write the decision and tell nobody."""
    votes = tx._branches.work.named(tx._votes or {})
    assert tx._branches.decide(Decision.COMMIT, "the block ended", [], votes) is Decision.COMMIT


@pytest.mark.req("BEYOND-1", "WM-22")
@pytest.mark.rule("R9")
@pytest.mark.rule("R15")
@pytest.mark.parametrize("step", STEPS)
def test_whatever_the_step_nothing_is_left_behind(town: Town, step: str) -> None:
    cluster = town.cluster("multisend-guaranteed", names=("b1", "b2"), needed=2)
    tx = died(cluster, step)
    town.recover()
    committed = step == "decided"
    state = "committed" if committed else "rolled_back"
    assert [town.lives(name) for name in ("b1", "b2")] == [[state]] * 2
    assert [town.told(name) for name in ("b1", "b2")] == [["one"] if committed else []] * 2
    assert cluster.recover("global") == []
    assert set(town.states(tx.txid).values()) == {BranchState(state)}
