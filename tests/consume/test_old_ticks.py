"""Ticks that no sweep will ask for again are dropped, a bounded number per round; the newest one stays."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.contracts.samples import drain, new_group, new_queues, prepared, published, row
from tests.scene.stored import Stored
from txsaga.store.store import Store
from txsaga.wiring.connecting import open_store

pytestmark = [pytest.mark.postgres, pytest.mark.rule("R13")]

AT_ONCE = timedelta(0)


class Clockwork:
    """A store with a dispatcher that has run for a while."""

    def __init__(self, store: Store, stored: Stored) -> None:
        self.store, self._stored = store, stored
        self.group, (self.qid,) = new_group(store), new_queues(store)

    @property
    def ticks(self) -> list[int]:
        return [id for (id,) in self._stored.rows("SELECT id FROM tick ORDER BY id")]

    def tick(self, count: int, *, age: timedelta = AT_ONCE) -> None:
        """Run ticks with news, then let time pass for all that there are."""
        for n in range(count):
            published(self.store, self.group, row(self.qid, str(n)))
            drain(self.store)
        self._stored.rows("UPDATE tick SET at = at - :age", age=age)

    def drop(self) -> None:
        self.store.log.drop_partitions()


@pytest.fixture
def clockwork(home_url: str) -> Iterator[Clockwork]:
    store = open_store(home_url)
    yield Clockwork(store, Stored(home_url))
    store.close()


def test_ticks_that_no_sweep_needs_any_more_go(clockwork: Clockwork) -> None:
    clockwork.tick(5, age=timedelta(hours=1))
    before = clockwork.ticks
    clockwork.drop()
    assert clockwork.ticks == before, "nothing was swept yet"
    clockwork.store.doubts.sweep(AT_ONCE)
    clockwork.drop()
    assert clockwork.ticks == before[-1:]


def test_a_sweep_goes_on_behind_the_ticks_that_went(clockwork: Clockwork) -> None:
    clockwork.tick(3, age=timedelta(hours=1))
    clockwork.store.doubts.sweep(AT_ONCE)
    clockwork.drop()
    undecided = prepared(clockwork.store, clockwork.group, row(clockwork.qid, "when?"))
    clockwork.tick(1)
    clockwork.store.doubts.sweep(AT_ONCE)
    assert [doubt.txid for doubt in clockwork.store.doubts.due(10)] == [undecided.txid]


def test_ticks_that_the_second_look_has_not_passed_stay(clockwork: Clockwork) -> None:
    """It comes ten minutes behind the first: a half may be stored long after its number was taken."""
    clockwork.tick(3, age=timedelta(hours=1))
    clockwork.store.doubts.sweep(AT_ONCE)
    clockwork.tick(3)
    clockwork.store.doubts.sweep(AT_ONCE)
    before = clockwork.ticks
    clockwork.drop()
    assert clockwork.ticks == before[-3:]


def test_ticks_that_a_slow_sweep_needs_stay(clockwork: Clockwork) -> None:
    """Whoever asks about old halves only needs old ticks: what counts is how far it came."""
    clockwork.tick(3, age=timedelta(hours=1))
    undecided = prepared(clockwork.store, clockwork.group, row(clockwork.qid, "when?"))
    clockwork.tick(2, age=timedelta(hours=1))
    clockwork.store.doubts.sweep(timedelta(hours=1.5))
    clockwork.tick(2)
    clockwork.drop()
    clockwork.tick(0, age=timedelta(hours=1))
    clockwork.store.doubts.sweep(timedelta(hours=1.5))
    assert clockwork.store.overview.checks(undecided.txid) is not None


def test_a_round_takes_a_bounded_number(clockwork: Clockwork, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txsaga.store.partitions.TICKS", 2)
    clockwork.tick(5, age=timedelta(hours=1))
    clockwork.store.doubts.sweep(AT_ONCE)
    before = clockwork.ticks
    clockwork.drop()
    assert clockwork.ticks == before[2:]


def test_offsets_go_on_behind_the_ticks_that_went(clockwork: Clockwork) -> None:
    clockwork.tick(3, age=timedelta(hours=1))
    clockwork.store.doubts.sweep(AT_ONCE)
    clockwork.drop()
    clockwork.tick(1)
    assert clockwork.store.log.bounds([clockwork.qid])[clockwork.qid].head == 4
    assert clockwork.store.overview.dispatch().waiting == 0
