"""Copies by themselves: each of them is handed out, told as dropped, or held back, and none is forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

import pytest

from txsaga.clusters.copies import COPY, PRIMARY, Arrival, Copies, Timers

pytestmark = pytest.mark.req("WM-39")


@dataclass(frozen=True)
class Letter:
    """A message of which only the headers count."""

    headers: Mapping[str, str]


def copy(id: str, broker: str, primary: str = "b1") -> Arrival[Letter]:
    return Arrival(broker, Letter({COPY: id, PRIMARY: primary}))


@pytest.fixture
def now() -> list[float]:
    return [0.0]


@pytest.fixture
def copies(now: list[float]) -> Copies[Letter]:
    return Copies[Letter](Timers(tentative=5), clock=lambda: now[0])


def test_of_two_that_are_due_at_once_one_is_handed_out_and_the_other_told_as_dropped(
    copies: Copies[Letter], now: list[float]
) -> None:
    assert not any(copies.arrived(copy("a", broker)) for broker in ("b2", "b3"))
    assert list(copies.due()) == []
    now[0] = 5
    assert [each.broker for each in copies.due()] == ["b2"]
    assert [each.broker for each in copies.dropped()] == ["b3"]
    assert (list(copies.due()), list(copies.dropped())) == ([], [])


def test_who_takes_some_of_those_that_are_due_finds_the_others_later(copies: Copies[Letter], now: list[float]) -> None:
    for id in "abc":
        for broker in ("b2", "b3"):
            copies.arrived(copy(id, broker))
    now[0] = 5
    found, dropped = [], []
    for _ in range(4):
        found += [each.copy for each in islice(copies.due(), 1)]
        dropped += [(each.copy, each.broker) for each in copies.dropped()]
    assert found == ["a", "b", "c"]
    assert dropped == [("a", "b3"), ("b", "b3"), ("c", "b3")]


def test_what_was_handed_out_in_vain_is_not_seen_and_one_copy_of_it_is_handed_out_again(
    copies: Copies[Letter], now: list[float]
) -> None:
    assert copies.arrived(copy("a", "b1"))
    copies.failed(copy("a", "b1"))
    assert not copies.arrived(copy("a", "b2"))
    now[0] = 5
    assert [each.broker for each in copies.due()] == ["b2"]
    assert not copies.arrived(copy("a", "b1"))
    assert copies.knows(copy("a", "b1"))


def test_what_waits_for_its_primary_is_given_up_with_its_broker(copies: Copies[Letter], now: list[float]) -> None:
    for broker in ("b2", "b3"):
        assert not copies.arrived(copy("a", broker))
    copies.give_up("b2")
    now[0] = 5
    assert [each.broker for each in copies.due()] == ["b3"]
    assert list(copies.dropped()) == []
