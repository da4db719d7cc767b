"""Each policy chooses as its table says, moves once when it is asked, and never chooses who is absent."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.docs.generated import POLICIES
from txsaga.clusters.config import ClusterBroker, ClusterConfig
from txsaga.clusters.policies import (
    ClusterPolicy,
    Multisend,
    PolicyName,
    Randomly,
    RoundRobin,
    Sticky,
    WeightedRoundRobin,
)
from txsaga.clusters.selection import MADE
from txsaga.errors import TooFewBrokers

NAMES = ("b1", "b2", "b3")
WEIGHTS = {"b1": 1, "b2": 2, "b3": 3}
CUTS = st.lists(st.sets(st.sampled_from(NAMES), min_size=1), min_size=1, max_size=40)


BROKERS = tuple(ClusterBroker(name=name, weight=weight) for name, weight in WEIGHTS.items())
SHOP = ClusterConfig(name="shop", brokers=BROKERS, needed=2, most=2)


def chosen(policy: ClusterPolicy, *available: str, times: int = 1) -> list[str]:
    """Return the first choice of each of some calls."""
    return [policy.choose(available or NAMES)[0] for _ in range(times)]


@pytest.mark.req("WM-02")
def test_plain_messages_go_round_one_by_one() -> None:
    assert chosen(RoundRobin(NAMES), times=5) == ["b1", "b2", "b3", "b1", "b2"]


@pytest.mark.req("WM-03")
@pytest.mark.parametrize("policy", [RoundRobin(NAMES), WeightedRoundRobin(dict.fromkeys(NAMES, 1))])
def test_a_turn_moves_by_one_broker_each_time_it_is_asked(policy: ClusterPolicy) -> None:
    assert [policy.choose(NAMES) for _ in range(4)] == [("b1",), ("b2",), ("b3",), ("b1",)]


@pytest.mark.req("WM-07", "WM-26")
def test_round_robin_passes_over_who_is_absent_and_takes_it_back() -> None:
    policy = RoundRobin(NAMES)
    assert chosen(policy) == ["b1"]
    assert chosen(policy, "b1", "b3", times=2) == ["b3", "b1"]
    assert chosen(policy, times=3) == ["b2", "b3", "b1"]


@pytest.mark.req("WM-27")
def test_sticky_stays_until_its_broker_fails_or_the_client_connects_anew() -> None:
    policy = Sticky(NAMES)
    assert chosen(policy, times=2) == ["b1", "b1"]
    assert chosen(policy, "b2", "b3") == ["b2"]
    assert chosen(policy, times=2) == ["b2", "b2"]
    assert chosen(policy, "b1", "b3") == ["b3"]
    policy.reconnect()
    assert chosen(policy) == ["b1"]


@pytest.mark.req("WM-28")
def test_random_reaches_every_live_broker_and_can_be_repeated() -> None:
    one, other = Randomly(NAMES, Random(7)), Randomly(NAMES, Random(7))
    calls = chosen(one, "b1", "b3", times=1000)
    assert set(calls) == {"b1", "b3"}
    assert calls == chosen(other, "b1", "b3", times=1000)
    assert min(Counter(calls).values()) > 300


@pytest.mark.req("WM-29")
def test_weights_share_sixty_transactions() -> None:
    assert Counter(chosen(WeightedRoundRobin(WEIGHTS), times=60)) == {"b1": 10, "b2": 20, "b3": 30}


@pytest.mark.req("WM-29")
@given(st.lists(st.integers(1, 7), min_size=1, max_size=6), st.integers(1, 4), st.data())
def test_each_cycle_of_weights_is_exact_for_those_who_are_there(
    weights: list[int], cycles: int, data: st.DataObject
) -> None:
    shares = {f"b{number}": weight for number, weight in enumerate(weights)}
    there = data.draw(st.sets(st.sampled_from(sorted(shares)), min_size=1))
    live = {name: weight for name, weight in shares.items() if name in there}
    calls = chosen(WeightedRoundRobin(shares), *there, times=cycles * sum(live.values()))
    assert Counter(calls) == {name: cycles * weight for name, weight in live.items()}


@pytest.mark.req("WM-29")
@given(CUTS)
def test_who_was_absent_comes_back_without_a_burst(cuts: list[set[str]]) -> None:
    policy = WeightedRoundRobin(WEIGHTS)
    for there in cuts:
        policy.choose(there)
    calls = Counter(chosen(policy, times=60))
    assert all(abs(calls[name] - 10 * weight) <= len(NAMES) for name, weight in WEIGHTS.items())


@pytest.mark.req("WM-30")
def test_best_effort_takes_all_or_a_maximum_and_one_is_enough() -> None:
    assert Multisend(NAMES).choose(NAMES) == NAMES
    assert Multisend(NAMES, most=2).choose(NAMES) == ("b1", "b2")
    assert Multisend(NAMES, most=2).choose(("b3",)) == ("b3",)
    assert Multisend(NAMES).needed == 1


@pytest.mark.req("WM-31", "WM-32")
def test_guaranteed_takes_all_and_needs_enough_of_them() -> None:
    policy = Multisend(NAMES, needed=2)
    assert policy.choose(NAMES) == NAMES
    assert policy.choose(("b3", "b1")) == ("b1", "b3")
    with pytest.raises(TooFewBrokers, match=r"1 of 3 brokers \(b1, b2, b3\) are available and 2 are needed") as caught:
        policy.choose(("b2",))
    assert caught.value.retryable


@pytest.mark.req("WM-25")
@pytest.mark.parametrize("name", PolicyName)
def test_every_policy_can_be_made_and_is_described(name: PolicyName) -> None:
    assert MADE[name](SHOP, Random(1)).choose(NAMES)
    assert all(POLICIES[name])


@pytest.mark.req("WM-07", "WM-32")
@pytest.mark.parametrize("name", PolicyName)
@given(cuts=CUTS)
def test_no_policy_chooses_who_is_absent_or_the_same_twice(name: PolicyName, cuts: list[set[str]]) -> None:
    policy = MADE[name](SHOP, Random(1))
    for there in cuts:
        if len(there) < policy.needed:
            with pytest.raises(TooFewBrokers):
                policy.choose(there)
            continue
        took = policy.choose(there)
        assert set(took) <= there
        assert len(set(took)) == len(took) >= policy.needed


@pytest.mark.req("WM-32")
@pytest.mark.parametrize("name", PolicyName)
def test_nobody_there_is_worth_another_try(name: PolicyName) -> None:
    with pytest.raises(TooFewBrokers, match="try again"):
        MADE[name](SHOP, Random(1)).choose(())


@pytest.mark.req("WM-03")
@pytest.mark.parametrize("name", PolicyName)
@given(cuts=CUTS)
def test_a_call_that_failed_moves_no_turn(name: PolicyName, cuts: list[set[str]]) -> None:
    steady, disturbed = MADE[name](SHOP, Random(1)), MADE[name](SHOP, Random(1))
    for there in (cut for cut in cuts if len(cut) >= steady.needed):
        with pytest.raises(TooFewBrokers):
            disturbed.choose(())
        assert steady.choose(there) == disturbed.choose(there)


@pytest.mark.req("WM-27")
@pytest.mark.parametrize("name", [each for each in PolicyName if each is not PolicyName.STICKY])
def test_only_sticky_begins_anew_with_a_connection(name: PolicyName) -> None:
    steady, reconnected = MADE[name](SHOP, Random(1)), MADE[name](SHOP, Random(1))
    for _ in range(7):
        reconnected.reconnect()
        assert steady.choose(NAMES) == reconnected.choose(NAMES)
