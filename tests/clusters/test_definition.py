"""A cluster binds brokers and a policy, refuses what can't be kept, and fails over only where its policy does."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txsaga.clusters.config import ClusterBroker, ClusterConfig, check, check_one, check_stores, faults, read
from txsaga.clusters.policies import PolicyName
from txsaga.clusters.selection import Chooser
from txsaga.errors import (
    BadDestination,
    ConfigError,
    PinRefused,
    StoreUnavailable,
    TooFewBrokers,
    TxSagaError,
    UnknownTopic,
)

NAMES = ("b1", "b2", "b3")


def cluster(policy: str = "round-robin", *names: str, name: str = "shop", **said: object) -> ClusterConfig:
    brokers = tuple(ClusterBroker(name=each) for each in names or NAMES)
    return replace(ClusterConfig(name=name, brokers=brokers, policy=policy), **said)  # type: ignore[arg-type]


def composite(policy: str = "sticky", **said: object) -> ClusterConfig:
    inner = (cluster("round-robin", "a1", "a2", name="a"), cluster("round-robin", "c1", "c2", name="c"))
    return replace(ClusterConfig(name="both", brokers=inner, policy=policy), **said)  # type: ignore[arg-type]


def chooser(of: ClusterConfig) -> Chooser:
    return Chooser(of, Random(5))


GUARANTEED = cluster("multisend-guaranteed", xa=True, needed=2)


def valid(policy: PolicyName, *names: str, name: str = "shop") -> ClusterConfig:
    """Return a cluster with what its policy asks for."""
    of = cluster(policy.value, *names, name=name)
    match policy:
        case PolicyName.GUARANTEED:
            return replace(of, xa=True, needed=2)
        case PolicyName.BEST_EFFORT:
            return replace(of, most=2)
    return of


@pytest.mark.req("WM-04")
def test_a_factory_resolves_brokers_and_policy() -> None:
    found = read("shop", {"brokers": {"b1": 2, "b2": 1}, "policy": "weighted-round-robin", "xa": True})
    assert found.weights == {"b1": 2, "b2": 1}
    assert (found.policy, found.xa, found.override) == (PolicyName.WEIGHTED, True, False)
    assert chooser(found).choose(["b1", "b2"]) == ("b1",)


@pytest.mark.req("WM-04")
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"policy": "sticky"}, "has no brokers; list them"),
        ({"brokers": ["b1"]}, "has no policy; choose one of round-robin, sticky"),
        ({}, "has no brokers.*has no policy"),
        ({"brokers": ["b1"], "policy": "sticky", "polcy": 1}, "has no setting polcy; it has brokers, clusters, policy"),
        ({"brokers": "b1", "policy": "sticky"}, "brokers of cluster 'shop' is str; give a list"),
        ({"clusters": ["b1"], "policy": "sticky"}, "clusters of cluster 'shop' is list; give the settings"),
        ({"clusters": {"a": ["b1"]}, "policy": "sticky"}, "cluster 'a' is list; give its settings"),
        ({"brokers": ["b1", 2], "policy": "sticky"}, "a broker of cluster 'shop' is int; give a list of names"),
        ({"brokers": ["b1", ""], "policy": "sticky"}, "something without a name; name it"),
        ({"brokers": ["b1"], "policy": "sticky", "xa": "yes"}, "xa of cluster 'shop' is str"),
    ],
)
def test_a_factory_without_brokers_or_policy_is_refused(settings: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read("shop", settings)


@pytest.mark.req("WM-29")
def test_a_broker_weighs_one_unless_said_otherwise() -> None:
    assert read("shop", {"brokers": ["b1", "b2"], "policy": "weighted-round-robin"}).weights == {"b1": 1, "b2": 1}


@pytest.mark.req("WM-29")
def test_a_weight_that_is_given_is_refused_where_nothing_is_weighed_even_if_it_is_one() -> None:
    with pytest.raises(ConfigError, match="gives weights to b1, b2, which are for weighted-round-robin; leave them"):
        read("shop", {"brokers": {"b1": 1, "b2": 1}, "policy": "sticky"})


@pytest.mark.req("WM-29")
def test_a_weight_of_none_in_the_settings_is_no_weight() -> None:
    with pytest.raises(ConfigError, match="the weight of broker 'b1' is None; weights are whole numbers"):
        read("shop", {"brokers": {"b1": None}, "policy": "weighted-round-robin"})


@pytest.mark.req("WM-25")
@pytest.mark.parametrize("policy", PolicyName)
def test_every_policy_is_accepted_by_its_name(policy: PolicyName) -> None:
    check(valid(policy))


@pytest.mark.req("WM-25")
def test_another_policy_is_refused_with_the_list() -> None:
    with pytest.raises(ConfigError, match=f"unknown policy 'last-used'; choose one of {', '.join(PolicyName)}"):
        check(cluster("last-used"))


REFUSED = [
    pytest.param(composite("weighted-round-robin"), "'both' weighs clusters", marks=pytest.mark.req("WM-33")),
    pytest.param(
        composite("multisend-best-effort", xa=True), "best effort under XA", marks=pytest.mark.req("WM-30", "WM-33")
    ),
    pytest.param(cluster("multisend-best-effort", xa=True), "best effort under XA", marks=pytest.mark.req("WM-30")),
    pytest.param(
        composite(xa=True, brokers=(cluster("multisend-best-effort", name="a"),)),
        "'a' sends by best effort under XA",
        marks=pytest.mark.req("WM-33"),
    ),
    pytest.param(replace(GUARANTEED, xa=False), "without XA; set xa", marks=pytest.mark.req("WM-31")),
    pytest.param(replace(GUARANTEED, needed=None), "give needed, from 1 to 3", marks=pytest.mark.req("WM-31")),
    pytest.param(
        replace(GUARANTEED, needed=4), "needed = 4; it must be between 1 and the 3", marks=pytest.mark.req("WM-31")
    ),
    pytest.param(cluster(needed=2), "needed, which is for multisend-guaranteed"),
    pytest.param(cluster(most=2), "most, which is for multisend-best-effort"),
    pytest.param(cluster("multisend-best-effort", most=0), "most = 0"),
    pytest.param(cluster("sticky", "b1", "b1"), "names b1 twice"),
    pytest.param(composite(brokers=(cluster(name="a"), cluster(name="c"))), "names b1, b2, b3 twice"),
    pytest.param(composite(brokers=(cluster(), ClusterBroker(name="b4"))), "brokers as well as clusters"),
    pytest.param(
        cluster(brokers=(ClusterBroker(name="b1", weight=0),)), "weight 0; weights are", marks=pytest.mark.req("WM-29")
    ),
    pytest.param(
        cluster(brokers=(ClusterBroker(name="b1", weight=5), ClusterBroker(name="b2"), ClusterBroker(name="b3"))),
        "'shop' gives weights to b1, which are for weighted-round-robin; leave them out, or choose that policy",
        marks=pytest.mark.req("WM-29"),
    ),
    pytest.param(
        cluster("sticky", brokers=(ClusterBroker(name="b1", weight=1), ClusterBroker(name="b2"))),
        "'shop' gives weights to b1, which are for weighted-round-robin; leave them out, or choose that policy",
        marks=pytest.mark.req("WM-29"),
    ),
    pytest.param(
        composite(brokers=(cluster("random", name="a", brokers=(ClusterBroker(name="b1", weight=2),)),)),
        "'a' gives weights to b1",
        marks=pytest.mark.req("WM-29", "WM-33"),
    ),
]


@pytest.mark.parametrize(("refused", "says"), REFUSED)
def test_what_can_not_be_kept_is_refused(refused: ClusterConfig, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        chooser(refused)


@pytest.mark.req("WM-33")
def test_the_clusters_of_a_composite_share_its_xa() -> None:
    inner: dict[str, object] = {"brokers": ["b1", "b2"], "policy": "multisend-guaranteed", "needed": 2}
    found = read("both", {"clusters": {"a": inner}, "policy": "sticky", "xa": True})
    assert chooser(found).choose(["b1", "b2"]) == ("b1", "b2")
    with pytest.raises(ConfigError, match="'a' guarantees several copies without XA"):
        read("both", {"clusters": {"a": inner}, "policy": "sticky"})


@pytest.mark.req("WM-33")
def test_a_cluster_in_a_composite_may_have_any_policy() -> None:
    policies = [policy for policy in PolicyName if policy is not PolicyName.BEST_EFFORT]
    inner = tuple(valid(policy, *(f"{policy}-{number}" for number in "123"), name=policy) for policy in policies)
    assert not list(faults(composite(brokers=inner, xa=True)))


def test_everything_that_is_wrong_is_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        check(composite("weighted-round-robin", needed=2, brokers=(cluster("sticky", "b1", "b1"), cluster(""))))
    for part in ("names b1 twice", "weighs clusters", "needed, which is for", "has no policy"):
        assert part in str(caught.value)


@pytest.mark.req("WM-34")
def test_load_moves_to_the_next_cluster_when_all_brokers_of_one_are_gone() -> None:
    choose = chooser(composite("sticky")).choose
    assert [choose(["a1", "a2", "c1", "c2"]) for _ in range(3)] == [("a1",), ("a2",), ("a1",)]
    assert choose(["a2", "c1"]) == ("a2",)
    assert [choose(["c1", "c2"]) for _ in range(2)] == [("c1",), ("c2",)]


@pytest.mark.req("WM-03", "WM-33")
def test_a_composite_moves_with_its_clusters() -> None:
    choose = chooser(composite("round-robin")).choose
    assert [choose(["a1", "a2", "c1", "c2"]) for _ in range(5)] == [("a1",), ("c1",), ("a2",), ("c2",), ("a1",)]


def test_a_composite_begins_anew_with_all_its_clusters() -> None:
    of = chooser(composite("sticky", brokers=(cluster("sticky", "a1", "a2", name="a"), cluster(name="c"))))
    assert of.choose(["a2", "b1"]) == ("a2",)
    assert of.choose(["a1", "a2", "b1"]) == ("a2",)
    of.reconnect()
    assert of.choose(["a1", "a2", "b1"]) == ("a1",)


@pytest.mark.req("WM-34", "WM-32")
def test_no_cluster_left_is_worth_another_try() -> None:
    with pytest.raises(TooFewBrokers, match="0 of 2"):
        chooser(composite()).choose(["elsewhere"])


@pytest.mark.req("WM-35")
def test_a_node_list_pins_a_later_message_and_moves_no_turn() -> None:
    of = chooser(cluster(override=True))
    first = of.choose(NAMES)
    assert [of.choose(NAMES, first) for _ in range(3)] == [("b1",)] * 3
    assert of.choose(NAMES) == ("b2",)


@pytest.mark.req("WM-35")
def test_node_lists_have_to_be_enabled() -> None:
    with pytest.raises(PinRefused, match="takes no node lists; set override"):
        chooser(cluster()).choose(NAMES, ("b1",))


@pytest.mark.req("WM-36")
@pytest.mark.parametrize(
    ("nodes", "available", "says"),
    [
        (("b9",), NAMES, "b9 names no broker of cluster 'shop'; it has b1, b2, b3"),
        (("b1", "b9"), NAMES, "^b9 names no broker"),
        ((1, "b9", ["b1"]), NAMES, r"^1, b9, \['b1'\] names no broker of cluster 'shop'; it has b1, b2, b3"),
        ((), NAMES, "an empty node list names no broker of cluster 'shop'; it has b1, b2, b3"),
        (("b2",), ("b1", "b3"), "b2 of cluster 'shop' is not available, .*; wait for it, or send without a node"),
        (("b1", "b2"), ("b1", "b3"), "b2 of cluster"),
    ],
)
def test_a_pin_that_can_not_be_followed_is_an_error(
    nodes: tuple[str, ...], available: tuple[str, ...], says: str
) -> None:
    of = chooser(cluster(override=True))
    with pytest.raises(PinRefused, match=says):
        of.choose(available, nodes)
    assert of.choose(NAMES) == ("b1",)


@pytest.mark.req("WM-36")
@pytest.mark.parametrize("nodes", ["b1", 1])
def test_a_node_list_is_a_list(nodes: object) -> None:
    with pytest.raises(ConfigError, match=f"nodes is {type(nodes).__name__}; give a list of names"):
        chooser(cluster(override=True)).choose(NAMES, nodes)  # type: ignore[arg-type]  # as a user may


@pytest.mark.req("WM-31", "WM-36")
def test_a_pin_takes_nothing_from_a_guarantee() -> None:
    of = chooser(replace(GUARANTEED, override=True))
    assert of.choose(NAMES, ("b1", "b3")) == ("b1", "b3")
    for nodes in (("b1",), ("b1", "b1")):
        with pytest.raises(PinRefused, match="fewer brokers than"):
            of.choose(NAMES, nodes)


DOWN, BAD = StoreUnavailable("down"), UnknownTopic("orders")


@pytest.mark.parametrize(
    ("of", "answers", "outcome"),
    [
        pytest.param(cluster("multisend-best-effort"), (DOWN, DOWN, None), ("b3",), marks=pytest.mark.req("WM-30")),
        pytest.param(
            cluster("multisend-best-effort"), (DOWN, DOWN, DOWN), TooFewBrokers, marks=pytest.mark.req("WM-30", "WM-32")
        ),
        pytest.param(cluster("multisend-best-effort"), (BAD, BAD, BAD), BadDestination, marks=pytest.mark.req("WM-32")),
        pytest.param(GUARANTEED, (None, DOWN, DOWN), TooFewBrokers, marks=pytest.mark.req("WM-31", "WM-32")),
        pytest.param(GUARANTEED, (None, DOWN, None), ("b1", "b3"), marks=pytest.mark.req("WM-31")),
        pytest.param(GUARANTEED, (None, None, None), NAMES, marks=pytest.mark.req("WM-31")),
        pytest.param(GUARANTEED, (None, BAD, BAD), BadDestination, marks=pytest.mark.req("WM-32")),
        pytest.param(GUARANTEED, (None, BAD, DOWN), TooFewBrokers, marks=pytest.mark.req("WM-32")),
        pytest.param(cluster(), (BAD,), BadDestination, marks=pytest.mark.req("WM-32")),
        pytest.param(cluster(), (DOWN,), TooFewBrokers, marks=pytest.mark.req("WM-32")),
    ],
)
def test_who_accepted_is_judged_by_the_policy(
    of: ClusterConfig, answers: tuple[TxSagaError | None, ...], outcome: tuple[str, ...] | type[TxSagaError]
) -> None:
    said = dict(zip(NAMES, answers, strict=False))
    if isinstance(outcome, tuple):
        assert chooser(of).accepted(said) == outcome
        return
    with pytest.raises(outcome, match=r"of \d brokers of cluster 'shop' accepted \(b\d: ") as caught:
        chooser(of).accepted(said)
    assert caught.value.retryable is (outcome is TooFewBrokers)


@pytest.mark.req("WM-33", "WM-31")
def test_a_composite_needs_what_each_of_its_clusters_needs() -> None:
    inner = tuple(
        cluster("multisend-guaranteed", f"{name}1", f"{name}2", name=name, xa=True, needed=2) for name in "ac"
    )
    of = chooser(composite("multisend-guaranteed", brokers=inner, xa=True, needed=2))
    assert of.choose(["a1", "a2", "c1", "c2"]) == ("a1", "a2", "c1", "c2")
    with pytest.raises(TooFewBrokers):
        of.accepted({"a1": None, "a2": None, "c1": None, "c2": DOWN})


@pytest.mark.req("WM-42")
def test_brokers_of_two_clusters_are_not_one() -> None:
    check_one(cluster(), {"b1": "north", "b2": "north", "b3": "north"})
    check_one(cluster(), {"b1": "north", "elsewhere": "south"})
    with pytest.raises(ConfigError, match=r"different clusters \(b1 to north, b3 to south\); make a cluster of each"):
        check_one(cluster(), {"b1": "north", "b3": "south"})


@pytest.mark.req("WM-42", "WM-33")
def test_the_clusters_of_a_composite_may_differ_and_each_is_one() -> None:
    check_one(composite(), {"a1": "north", "a2": "north", "c1": "south", "c2": "south"})
    with pytest.raises(ConfigError, match=r"'c' lists brokers of different clusters \(c1 to south, c2 to north\)"):
        check_one(composite(), {"a1": "north", "a2": "north", "c1": "south", "c2": "north"})


@pytest.mark.req("WM-31")
def test_a_store_is_one_broker_however_it_is_named() -> None:
    check_stores({"p1": UUID(int=1), "p2": UUID(int=2)})
    with pytest.raises(ConfigError, match="brokers 'p1' and 'p3' are the same store; list it once"):
        check_stores({"p1": UUID(int=1), "p2": UUID(int=2), "p3": UUID(int=1)})


@given(
    st.lists(st.sets(st.sampled_from(["a1", "a2", "c1", "c2"]), min_size=1), max_size=30), st.sampled_from(PolicyName)
)
def test_a_composite_chooses_among_those_who_are_there(cuts: list[set[str]], policy: PolicyName) -> None:
    if policy in (PolicyName.WEIGHTED, PolicyName.GUARANTEED):
        return
    choose = chooser(composite(policy.value)).choose
    for there in cuts:
        assert set(choose(there)) <= there
