"""Numbers are taken many at a time by who needs many, used once, and never kept for long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from threading import get_ident

import pytest

from txsaga.core.lifecycle import TxState
from txsaga.core.records import TxRecord
from txsaga.errors import StoreUnavailable
from txsaga.flows.txid_pool import AHEAD, KEPT, MANY, TxidPool

GROUP = 7


class Source:
    """A store that gives out numbers."""

    def __init__(self, takes: Callable[[], object] = lambda: None) -> None:
        self.takes = takes
        self.asked: list[int] = []
        self.asked_in: list[int] = []
        self.away = False
        self.given = 0

    def __call__(self, group: int, many: int) -> Sequence[TxRecord]:
        self.asked.append(many)
        self.asked_in.append(get_ident())
        self.takes()
        if self.away:
            raise StoreUnavailable("it is away")
        numbers = range(self.given + 1, self.given + many + 1)
        self.given += many
        return [
            TxRecord(txid=n, group=group, token=b"", key=None, epoch=1, owner=1, state=TxState.ACTIVE) for n in numbers
        ]


def _let_fetch() -> None:
    for thread in threading.enumerate():
        if thread.name == "txsaga-numbers":
            thread.join(10)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    hands = [1_000.0]
    monkeypatch.setattr("time.monotonic", lambda: hands[0])
    return hands


def test_who_needs_one_now_and_then_takes_one(now: list[float]) -> None:
    source = Source()
    numbers = TxidPool(source)
    for _ in range(3):
        numbers.take(GROUP)
        now[0] += 60
    assert source.asked == [1, 1, 1]


def test_who_needs_many_asks_seldom_and_has_each_once(now: list[float]) -> None:
    source = Source()
    numbers = TxidPool(source)
    taken = [numbers.take(GROUP).txid for _ in range(1_000)]
    assert len(set(taken)) == 1_000
    assert max(source.asked) == MANY
    assert len(source.asked) < 25


def test_who_uses_many_waits_for_none_of_them_after_the_first(now: list[float]) -> None:
    source = Source()
    numbers = TxidPool(source)
    for _ in range(3 * MANY):
        numbers.take(GROUP)
        _let_fetch()
    fetched_here = [many for many, thread in zip(source.asked, source.asked_in, strict=True) if thread == get_ident()]
    assert max(fetched_here) == AHEAD
    assert max(source.asked) == MANY


def test_what_cannot_be_fetched_ahead_is_told_to_who_needs_it(now: list[float]) -> None:
    source = Source()
    numbers = TxidPool(source)
    while max(source.asked, default=0) < AHEAD:
        numbers.take(GROUP)
    source.away = True
    for _ in range(AHEAD - 1):
        assert numbers.take(GROUP)
        _let_fetch()
    with pytest.raises(StoreUnavailable):
        numbers.take(GROUP)
    source.away = False
    assert numbers.take(GROUP)


def test_a_store_that_gives_none_is_asked_ahead_once(now: list[float]) -> None:
    source = Source()
    numbers = TxidPool(source)
    while max(source.asked, default=0) < AHEAD:
        numbers.take(GROUP)
    source.takes = lambda: [][0]  # whatever it raises
    asked = len(source.asked)
    for _ in range(AHEAD - 1):
        numbers.take(GROUP)
        _let_fetch()
    assert len(source.asked) == asked + 1


def test_an_answer_that_is_late_is_used_no_more_and_makes_nothing_fresh_old(now: list[float]) -> None:
    source = Source()
    numbers = TxidPool(source)
    while max(source.asked, default=0) < AHEAD:
        numbers.take(GROUP)
    here, asked, slow = get_ident(), threading.Event(), threading.Event()

    def late() -> None:
        if get_ident() != here:
            asked.set()
            assert slow.wait(10)

    source.takes = late
    for _ in range(AHEAD - 1):
        numbers.take(GROUP)
    assert asked.wait(10)
    now[0] += 2 * KEPT
    for _ in range(3):  # one, and the first two of four
        numbers.take(GROUP)
    slow.set()
    _let_fetch()
    newest = source.given
    assert all(numbers.take(GROUP).txid < newest for _ in range(2))
    numbers.take(GROUP)
    assert source.asked[-1] == 16


def test_a_store_that_takes_longer_than_numbers_are_kept_gives_one_for_each_question(now: list[float]) -> None:
    source = Source(takes=lambda: now.__setitem__(0, now[0] + 2 * KEPT))
    numbers = TxidPool(source)
    assert [numbers.take(GROUP).txid for _ in range(3)] == [1, 2, 3]
    assert len(source.asked) == 3


def test_nobody_waits_for_what_is_fetched_ahead(now: list[float]) -> None:
    source = Source()
    numbers = TxidPool(source)
    while max(source.asked, default=0) < AHEAD:
        numbers.take(GROUP)
    here, slow = get_ident(), threading.Event()
    source.takes = lambda: None if get_ident() == here else slow.wait(10)
    taken = {numbers.take(GROUP).txid for _ in range(2 * AHEAD)}
    assert source.asked[-1] > AHEAD
    slow.set()
    _let_fetch()
    taken |= {numbers.take(GROUP).txid for _ in range(2 * AHEAD)}
    assert len(taken) == 4 * AHEAD


def test_where_no_thread_is_to_be_had_they_are_fetched_when_they_are_needed(
    now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", full)
    source = Source()
    numbers = TxidPool(source)
    assert len({numbers.take(GROUP).txid for _ in range(MANY)}) == MANY
    assert set(source.asked_in) == {get_ident()}


def test_a_number_is_not_used_after_it_lay_for_long(now: list[float]) -> None:
    source = Source()
    numbers = TxidPool(source)
    taken = [numbers.take(GROUP).txid for _ in range(10)]
    now[0] += KEPT
    assert numbers.take(GROUP).txid > max(taken) + 1
    assert source.asked[-1] == 1


def test_each_group_has_its_own(now: list[float]) -> None:
    numbers = TxidPool(Source())
    assert {numbers.take(group).group for group in (1, 2, 1, 2)} == {1, 2}


def test_a_forked_child_uses_none_of_its_parents(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = TxidPool(Source())
    taken = [numbers.take(GROUP).txid for _ in range(10)]
    monkeypatch.setattr("txsaga.flows.txid_pool.this_process", lambda: -1)
    assert numbers.take(GROUP).txid > max(taken) + 1
