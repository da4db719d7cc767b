"""Numbers are taken many at a time by who needs many, used once, and never kept for long."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import count

import pytest

from txsaga.engine.coordinator.numbers import KEPT, MANY, Numbers
from txsaga.model.lifecycle import TxState
from txsaga.model.records import Life

GROUP = 7


class Source:
    """A store that gives out numbers."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self._next = count(1)

    def __call__(self, group: int, many: int) -> Sequence[Life]:
        self.asked.append(many)
        numbers = [next(self._next) for _ in range(many)]
        return [Life(txid=n, group=group, token=b"", key=None, epoch=1, owner=1, state=TxState.ACTIVE) for n in numbers]


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    hands = [1_000.0]
    monkeypatch.setattr("time.monotonic", lambda: hands[0])
    return hands


def test_who_needs_one_now_and_then_takes_one(now: list[float]) -> None:
    source = Source()
    numbers = Numbers(source)
    for _ in range(3):
        numbers.take(GROUP)
        now[0] += 60
    assert source.asked == [1, 1, 1]


def test_who_needs_many_asks_seldom_and_has_each_once(now: list[float]) -> None:
    source = Source()
    numbers = Numbers(source)
    taken = [numbers.take(GROUP).txid for _ in range(1_000)]
    assert len(set(taken)) == 1_000
    assert max(source.asked) == MANY
    assert len(source.asked) < 25


def test_a_number_is_not_used_after_it_lay_for_long(now: list[float]) -> None:
    source = Source()
    numbers = Numbers(source)
    taken = [numbers.take(GROUP).txid for _ in range(10)]
    now[0] += KEPT
    assert numbers.take(GROUP).txid > max(taken) + 1
    assert source.asked[-1] == 1


def test_each_group_has_its_own(now: list[float]) -> None:
    numbers = Numbers(Source())
    assert {numbers.take(group).group for group in (1, 2, 1, 2)} == {1, 2}


def test_a_forked_child_uses_none_of_its_parents(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = Numbers(Source())
    taken = [numbers.take(GROUP).txid for _ in range(10)]
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert numbers.take(GROUP).txid > max(taken) + 1
