"""Recover and forget over a cluster: prepared and heuristic branches, by broker, for one client or for all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clusters.town import NAMES, ORDERS, Town
from txsaga.checkback.by_hand import ByHand
from txsaga.clusters.broker_cluster import BrokerCluster
from txsaga.clusters.producer import ClusterTransaction
from txsaga.clusters.recovery import FoundBranch
from txsaga.core.decision import Decision
from txsaga.errors import ConfigError, HeuristicCommit, ProtocolError, ResourceManagerFailed, UnknownBranch
from txsaga.flows.branch import BranchId, BranchState
from txsaga.resources.broker import BrokerWork, StoreParticipant

pytestmark = pytest.mark.postgres


def left_prepared(cluster: BrokerCluster, client: str = "shop") -> ClusterTransaction:
    """Run a transaction up to its votes, and let its owner be gone."""
    tx = cluster.producer(client).transaction()
    tx.__enter__()
    tx.send(ORDERS, b"left")
    tx.end()
    tx.prepare()
    return tx


def number(tx: ClusterTransaction) -> int:
    assert tx.txid is not None
    return tx.txid


def forced(town: Town, name: str, tx: ClusterTransaction, decision: Decision) -> None:
    """Let a person decide what a broker holds prepared."""
    ((txid,),) = town.stored[name].rows("SELECT txid FROM tx WHERE key LIKE :xid", xid=f"%:{tx.id}:%")
    ByHand(town.direct[name].kernel).decide(txid, decision, who="anna", why="it waits for days", force=True)


def heuristic(town: Town, cluster: BrokerCluster) -> ClusterTransaction:
    """Leave a branch that was committed by hand while its transaction rolled back."""
    tx = left_prepared(cluster)
    (name,) = tx.participants
    forced(town, name, tx, Decision.COMMIT)
    with pytest.raises(HeuristicCommit, match=f"resource {name!r}"):
        tx.roll_back()
    return tx


def places(found: list[FoundBranch]) -> list[tuple[str, BranchState]]:
    return [(each.broker, each.state) for each in found]


def test_a_rollback_that_a_broker_has_overruled_says_so_also_where_an_error_leaves_the_block(town: Town) -> None:
    tx = left_prepared(town.cluster())
    (name,) = tx.participants
    forced(town, name, tx, Decision.COMMIT)
    error = ValueError("out of chairs")
    tx.__exit__(ValueError, error, None)
    assert (tx.decision, town.told(name)) == (Decision.ROLLBACK, ["left"])
    assert any(f"resource {name!r}" in note for note in error.__notes__)


@pytest.mark.req("WM-21")
def test_recover_lists_what_is_prepared_or_heuristic_by_broker(town: Town) -> None:
    cluster = town.cluster()
    with cluster.producer("shop").transaction() as committed:
        committed.send(ORDERS, b"done")
    prepared = left_prepared(cluster)
    by_hand = heuristic(town, cluster)
    active = cluster.producer("shop").transaction()
    with active:
        active.send(ORDERS, b"open")
        found = cluster.recover()
    assert places(found) == [("b2", BranchState.PREPARED), ("b3", BranchState.HEURISTIC_COMMITTED)]
    assert [each.branch.transaction for each in found] == [prepared.id, by_hand.id]


@pytest.mark.req("WM-23")
def test_a_participant_that_can_not_be_asked_is_an_error_that_names_it(town: Town) -> None:
    cluster = town.cluster()
    left_prepared(cluster)
    left_prepared(cluster)
    town.down("b2")
    with pytest.raises(ResourceManagerFailed, match="'b2'"):
        cluster.recover()
    with pytest.raises(ResourceManagerFailed, match="'b2'"):
        cluster.recover("global")


@pytest.mark.req("WM-23")
def test_a_broker_in_which_nothing_waits_may_be_away(town: Town) -> None:
    cluster = town.cluster()
    with cluster.producer("shop").transaction() as tx:
        tx.send(ORDERS, b"done")
    town.states(tx.txid)
    town.down("b3")
    assert cluster.recover() == []
    with pytest.raises(ResourceManagerFailed, match="'b3'"):
        cluster.recover("global")


@pytest.mark.req("WM-24", "WM-45")
def test_forget_clears_heuristics_and_leaves_what_is_prepared(town: Town) -> None:
    cluster = town.cluster()
    first = heuristic(town, cluster)
    left_prepared(cluster)
    third = heuristic(town, cluster)
    assert {town.states(each.txid)[name] for each, name in ((first, "b1"), (third, "b3"))} == {
        BranchState.HEURISTIC_COMMITTED
    }
    assert places(cluster.forget()) == [(name, BranchState.HEURISTIC_COMMITTED) for name in ("b1", "b3")]
    assert places(cluster.recover()) == [("b2", BranchState.PREPARED)]
    assert town.states(first.txid)["b1"] is BranchState.FORGOTTEN
    assert cluster.forget() == []


@pytest.mark.req("WM-48")
def test_forget_of_anything_else_is_refused(town: Town) -> None:
    cluster = town.cluster()
    tx = left_prepared(cluster)
    (found,) = cluster.recover()
    with pytest.raises(ProtocolError, match="only heuristic"):
        cluster.forget(found)
    assert tx.id is not None
    with pytest.raises(UnknownBranch):
        cluster.forget(FoundBranch("b2", BranchId(tx.id, 9), BranchState.HEURISTIC_COMMITTED))
    assert places(cluster.recover()) == [("b1", BranchState.PREPARED)]


@pytest.mark.req("WM-41")
def test_restricted_lists_this_clients_transactions_and_global_all(town: Town) -> None:
    left_prepared(town.cluster(), "client-x")
    other = town.cluster()
    other.producer("client-y")
    assert other.recover("restricted") == other.recover() == []
    assert places(other.recover("global")) == [("b1", BranchState.PREPARED)]
    with pytest.raises(ConfigError, match="restricted or global"):
        other.recover("some")


@pytest.mark.req("WM-48")
def test_a_scan_goes_page_by_page(town: Town) -> None:
    cluster = town.cluster("sticky")
    participant = StoreParticipant(town.direct["b1"], name="b1")
    transaction = town.coordinator.identity.transaction(number(left_prepared(cluster)))
    for attempt in range(2, 26):
        enlisted = participant.enlist(BranchId(transaction, 1, attempt))
        assert isinstance(enlisted.handle, BrokerWork)
        enlisted.handle.send(ORDERS, b"more")
        enlisted.prepare()()
    scan = cluster.scan(page=10)
    assert [len(scan.next()) for _ in range(4)] == [10, 10, 5, 0]
    scan.end()
    with pytest.raises(ProtocolError, match="ended"):
        scan.next()
    assert [len(page) for page in cluster.scan(page=10)] == [10, 10, 5]
    with pytest.raises(ConfigError, match="page"):
        cluster.scan(page=0)


def lines(folder: Path, name: str) -> list[list[str]]:
    path = folder / f"{name}.log"
    return [line.split() for line in path.read_text("utf-8").splitlines()] if path.exists() else []


@pytest.mark.req("WM-40")
def test_the_log_tells_each_step_of_each_broker_in_its_order(town: Town, tmp_path: Path) -> None:
    cluster = town.cluster("multisend-guaranteed", names=("b1", "b2"), needed=2, tx_log=tmp_path / "log")
    with cluster.producer("shop").transaction() as tx:
        tx.send(ORDERS, b"one")
    for name in ("b1", "b2"):
        told = lines(tmp_path / "log", name)
        assert [line[1] for line in told] == ["preparing", "prepared", "committing", "committed"]
        assert {line[2] for line in told} == {tx.id}
        assert [line[0] for line in told] == sorted(line[0] for line in told)


@pytest.mark.req("WM-40")
def test_without_a_log_nothing_is_logged_and_bystanders_never_are(town: Town, tmp_path: Path) -> None:
    with town.cluster(tx_log=tmp_path / "log").producer("shop").transaction() as tx:
        tx.send(ORDERS, b"one")
    assert [len(lines(tmp_path / "log", name)) for name in NAMES] == [4, 0, 0]
    with town.cluster().producer("shop").transaction() as tx:
        tx.send(ORDERS, b"two")
    assert [len(lines(tmp_path / "log", name)) for name in NAMES] == [4, 0, 0]
