"""Where a cluster places messages: one by one, or a transaction as a whole, among the brokers that are there."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import txsaga
from tests.clusters.town import NAMES, ORDERS, Town
from txsaga.clusters.broker_cluster import BrokerCluster
from txsaga.errors import ConfigError, PinRefused, TooFewBrokers
from txsaga.wiring import connecting

pytestmark = pytest.mark.postgres


def placed(cluster: BrokerCluster, times: int) -> list[str]:
    """Send so many plain messages; return who took each."""
    producer = cluster.producer("shop")
    return [producer.send("plain", str(n).encode()).nodes[0] for n in range(times)]


def placed_in_transactions(cluster: BrokerCluster, times: int) -> list[str]:
    """Run so many transactions of one message; return who took each."""
    producer, found = cluster.producer("shop"), list[str]()
    for n in range(times):
        with producer.transaction() as tx:
            tx.send(ORDERS, str(n).encode())
            found += tx.participants
    return found


@pytest.mark.req("WM-02")
def test_plain_messages_are_placed_one_by_one(town: Town) -> None:
    assert placed(town.plain(), 5) == ["b1", "b2", "b3", "b1", "b2"]


@pytest.mark.req("WM-01", "WM-03")
def test_a_transaction_moves_the_policy_once_whatever_it_sends(town: Town) -> None:
    producer = town.cluster().producer("shop")
    with producer.transaction() as first:
        for n in range(5):
            first.send(ORDERS, f"first {n}".encode())
    with producer.transaction() as second:
        second.send(ORDERS, b"second")
    assert [len(told) for told in town.all_told()] == [5, 1, 0]
    assert (first.nodes, second.nodes) == (("b1",), ("b2",))


@pytest.mark.req("WM-07")
def test_the_next_transaction_goes_to_the_next_broker_that_is_there(town: Town) -> None:
    cluster = town.cluster()
    assert placed_in_transactions(cluster, 1) == ["b1"]
    town.down("b2")
    assert placed_in_transactions(cluster, 2) == ["b3", "b1"]
    assert [len(told) for told in town.all_told()] == [2, 0, 1]


@pytest.mark.req("WM-26")
def test_round_robin_passes_over_who_is_down_and_takes_it_again(town: Town) -> None:
    cluster = town.plain()
    town.down("b2")
    assert placed(cluster, 3) == ["b1", "b3", "b1"]
    town.up("b2")
    assert placed(cluster, 3) == ["b2", "b3", "b1"]


@pytest.mark.req("WM-27")
def test_sticky_stays_where_it_went_until_the_client_connects_anew(town: Town) -> None:
    cluster = town.plain("sticky")
    assert placed(cluster, 2) == ["b1", "b1"]
    town.down("b1")
    assert placed(cluster, 2) == ["b2", "b2"]
    town.up("b1")
    assert placed(cluster, 2) == ["b2", "b2"]
    cluster.reconnect()
    assert placed(cluster, 1) == ["b1"]


@pytest.mark.req("WM-28")
def test_random_reaches_every_live_broker_and_can_be_repeated(town: Town) -> None:
    found = [placed(town.opened({"brokers": list(NAMES), "policy": "random"}, seed=7), 30) for _ in range(2)]
    assert found[0] == found[1]
    assert set(found[0]) == set(NAMES)


@pytest.mark.req("WM-29")
def test_weights_share_the_load(town: Town) -> None:
    cluster = town.opened({"brokers": {"b1": 1, "b2": 2, "b3": 3}, "policy": "weighted-round-robin"})
    assert Counter(placed(cluster, 60)) == {"b1": 10, "b2": 20, "b3": 30}


@pytest.mark.req("WM-26")
def test_without_any_broker_a_send_fails_and_may_be_tried_again(town: Town) -> None:
    cluster = town.plain()
    town.down(*NAMES)
    with pytest.raises(TooFewBrokers) as told:
        placed(cluster, 1)
    assert told.value.retryable
    town.up(*NAMES)
    assert placed(cluster, 1) == ["b1"]


@pytest.mark.req("WM-35")
def test_a_node_list_pins_later_messages_to_the_same_brokers(town: Town) -> None:
    producer = town.plain(override=True).producer("shop")
    first = producer.send("plain", b"one")
    assert [producer.send("plain", b"more", nodes=first.nodes).nodes for _ in range(3)] == [first.nodes] * 3
    assert producer.send("plain", b"next").nodes == ("b2",)


@pytest.mark.req("WM-35")
def test_a_node_list_pins_a_transaction(town: Town) -> None:
    producer = town.cluster(override=True).producer("shop")
    with producer.transaction(nodes=("b3",)) as tx:
        tx.send(ORDERS, b"one")
    assert town.all_told() == [[], [], ["one"]]


@pytest.mark.req("WM-35", "WM-36")
@pytest.mark.parametrize(
    ("override", "nodes", "said"),
    [(False, ("b1",), "takes no node lists"), (True, ("b9",), "names no broker"), (True, ("b2",), "not available")],
)
def test_a_pin_that_can_not_be_kept_is_an_error(town: Town, override: bool, nodes: tuple[str, ...], said: str) -> None:
    cluster = town.cluster(override=override)
    town.down("b2")
    producer = cluster.producer("shop")
    with pytest.raises(PinRefused, match=said):
        producer.send("plain", b"one", nodes=nodes)
    with pytest.raises(PinRefused, match=said), producer.transaction(nodes=nodes):
        pytest.fail("entered")  # pragma: no cover
    assert town.all_told() == [[], [], []]


@pytest.mark.req("WM-04", "WM-25")
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"policy": "round-robin"}, "has no brokers"),
        ({"brokers": list(NAMES)}, "has no policy"),
        ({"brokers": list(NAMES), "policy": "last-used"}, "choose one of round-robin"),
    ],
)
def test_a_factory_without_brokers_or_policy_is_refused(town: Town, settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        town.opened(settings)


@pytest.mark.req("WM-04")
def test_a_factory_binds_brokers_and_policy(town: Town) -> None:
    cluster = town.cluster("sticky")
    assert (cluster.definition.policy, cluster.definition.xa, cluster.available) == ("sticky", True, NAMES)


@pytest.mark.req("WM-04")
def test_every_broker_that_is_listed_can_be_reached(town: Town) -> None:
    with pytest.raises(ConfigError, match="b4"):
        town.opened({"brokers": [*NAMES, "b4"], "policy": "sticky"})


@pytest.mark.req("WM-43")
def test_under_xa_there_is_exactly_one_coordinator_and_no_broker_is_it(town: Town) -> None:
    xa = {"brokers": list(NAMES), "policy": "sticky", "xa": True}
    with pytest.raises(ConfigError, match="has xa but no coordinator"):
        town.opened(xa)
    with pytest.raises(ConfigError, match="coordinator"):
        town.opened(xa, coordinator=[town.coordinator, town.coordinator])
    with pytest.raises(ConfigError, match="is the coordinator itself"):
        txsaga.cluster(xa, town.urls, coordinator=town.direct["b1"])
    with pytest.raises(ConfigError, match="has no coordinator, which its transactions need"):
        town.plain().producer("shop").transaction()


@pytest.mark.req("WM-42")
def test_brokers_of_two_clusters_are_not_one(town: Town) -> None:
    town.direct["b1"].join_cluster("east")
    town.direct["b2"].join_cluster("west")
    with pytest.raises(ConfigError, match="b1 to east, b2 to west"):
        town.plain()
    town.direct["b2"].join_cluster("east")
    assert town.plain().available == NAMES


@pytest.mark.req("WM-31", "WM-33")
@pytest.mark.parametrize("apart", [False, True])
def test_a_store_is_one_broker_of_a_cluster_however_it_is_named(
    town: Town, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, opened = connecting.connect, list[txsaga.Broker]()

    def noted(url: str, **how: Any) -> txsaga.Broker:  # as a cluster connects
        opened.append(connect(url, **how))
        return opened[-1]

    monkeypatch.setattr(connecting, "connect", noted)
    guaranteed = {"policy": "multisend-guaranteed", "needed": 2, "xa": True}
    inner = {name: {"brokers": [name], "policy": "sticky"} for name in ("p1", "p2")}
    settings = {**guaranteed, **({"clusters": inner} if apart else {"brokers": ["p1", "p2"]})}
    urls = {"p1": town.urls["b1"], "p2": town.urls["b1"]}
    with pytest.raises(ConfigError, match="brokers 'p1' and 'p2' are the same store; list it once"):
        txsaga.cluster(settings, urls, coordinator=town.coordinator)
    assert [broker.kernel.closed for broker in opened] == [True, True]


@pytest.mark.req("WM-42")
def test_a_broker_that_was_away_is_looked_at_when_it_comes(town: Town) -> None:
    town.direct["b1"].join_cluster("east")
    town.direct["b2"].join_cluster("west")
    town.down("b2")
    cluster = town.plain()
    town.up("b2")
    with pytest.raises(ConfigError, match="different clusters"):
        placed(cluster, 2)


@pytest.mark.req("WM-33", "WM-34")
def test_load_moves_to_the_next_cluster_when_all_brokers_of_one_are_gone(town: Town) -> None:
    inner = {
        "east": {"brokers": {"b1": 2, "b2": 1}, "policy": "weighted-round-robin"},
        "west": {"brokers": ["b3"], "policy": "round-robin"},
    }
    cluster = town.opened({"clusters": inner, "policy": "sticky"})
    assert Counter(placed(cluster, 6)) == {"b1": 4, "b2": 2}
    town.down("b1")
    assert placed(cluster, 2) == ["b2", "b2"]
    town.down("b2")
    assert placed(cluster, 2) == ["b3", "b3"]


@pytest.mark.req("WM-34", "WM-33")
def test_transactions_move_to_the_next_cluster_too(town: Town) -> None:
    inner = {
        "east": {"brokers": ["b1", "b2"], "policy": "random"},
        "west": {"brokers": ["b3"], "policy": "round-robin"},
    }
    settings = {"clusters": inner, "policy": "sticky", "xa": True}
    cluster = town.opened(settings, coordinator=town.coordinator, seed=1)
    town.down("b1", "b2")
    assert placed_in_transactions(cluster, 1) == ["b3"]
    with pytest.raises(ConfigError, match="weighs clusters"):
        town.opened({**settings, "policy": "weighted-round-robin"}, coordinator=town.coordinator)
