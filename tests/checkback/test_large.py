"""Databases that can say little at once: many of them take no longer, and what was not asked comes next."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import NullPool, create_engine, event

from tests.scene.members import Member, age, remarks
from tests.scene.shop import Shop, order
from txsaga.checkback import judge
from txsaga.checkback.profile import CheckProfile
from txsaga.errors import StoreUnavailable

A_MINUTE = CheckProfile(interval=timedelta(minutes=1))


class Tills:
    """Databases of one member whose answers take so long, and that can't say more than so much at once."""

    def __init__(
        self, shop: Shop, folder: Path, patch: pytest.MonkeyPatch, *, names: int, cost: float, most: int
    ) -> None:
        self._names = [f"till{n}" for n in range(names)]
        engines = {name: create_engine(f"sqlite:///{folder / name}.db", poolclass=NullPool) for name in self._names}
        self.member, self.now = Member(shop, threads=4, **engines), 0.0
        self.asked, self.refused = list[int](), list[int]()
        self._cost, self._most = cost, most
        patch.setattr(judge, "time", SimpleNamespace(monotonic=lambda: self.now))
        for name in self._names:
            _, evidence = self.member.kernel.resource(name)
            patch.setattr(evidence, "read_many", self._slowly(evidence.read_many))

    def leave(self, count: int) -> list[int]:
        """Leave transactions behind in each database, whose local work is there."""
        left = []
        for name in self._names:
            for n in range(count):
                tx = self.member.producer().transaction().__enter__()
                tx.send(order(f"{name}-{n}"))
                with tx.local(name):
                    pass
                assert tx.txid is not None
                left.append(tx.txid)
        return left

    def _slowly(self, read_many: Callable[[list[str]], object]) -> Callable[[list[str]], object]:
        def read(ids: list[str]) -> object:
            self.now += self._cost
            (self.asked if len(ids) <= self._most else self.refused).append(len(ids))
            if len(ids) > self._most:
                raise StoreUnavailable("canceling statement due to statement timeout")
            return read_many(ids)

        return read


def test_a_round_takes_no_longer_where_many_databases_are_slow(
    moody_shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a lead, and behind that it may settle nothing at all."""
    tills = Tills(moody_shop, tmp_path, monkeypatch, names=3, cost=0.3, most=2)
    left, took = tills.leave(8), list[float]()
    for _ in range(20):
        age(moody_shop)
        began = tills.now
        tills.member.lead()
        took.append(tills.now - began)
    assert {moody_shop.state(txid) for txid in left} == {"committed"}
    # Three are asked side by side, though this clock goes on for each of them, and one more is begun in time.
    assert max(took) < 3 * 0.3 + judge.BRIEF


def test_what_a_busy_database_was_not_asked_about_comes_next(
    moody_shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tills = Tills(moody_shop, tmp_path, monkeypatch, names=1, cost=1.5 * judge.BRIEF, most=3)
    left = tills.leave(10)
    age(moody_shop)
    for _ in range(2):
        tills.member.lead(A_MINUTE)  # 10 are too many, and 5
        moody_shop.later(61)
    for _ in range(2):
        tills.member.lead(A_MINUTE)
        moody_shop.later(1)
    assert [moody_shop.state(txid) for txid in left].count("committed") == 2 + 3
    assert not [why for txid in left for _, why in remarks(moody_shop, txid) if "first" in why]


def test_what_was_too_much_is_not_asked_again_at_once(
    moody_shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tills = Tills(moody_shop, tmp_path, monkeypatch, names=1, cost=1.5 * judge.BRIEF, most=15)
    left = tills.leave(100)
    for _ in range(14):
        age(moody_shop)
        tills.member.lead()
    assert {moody_shop.state(txid) for txid in left} == {"committed"}
    assert tills.refused[:3] == [100, 50, 25]
    assert len(tills.refused) <= 4


def test_a_round_asks_the_store_as_often_about_many_as_about_few(shop: Shop, tmp_path: Path) -> None:
    member, asked = Member(shop, till=create_engine(f"sqlite:///{tmp_path}/till.db")), list[str]()
    event.listen(shop.store.engine, "before_cursor_execute", lambda *seen: asked.append(seen[2]))
    counted = list[int]()
    for number in (1, 3, 12):
        for n in range(number):
            tx = member.producer().transaction().__enter__()
            tx.send(order(f"{number}-{n}"))
            with tx.local("till"):
                pass
        age(shop)
        asked.clear()
        member.lead()
        counted.append(len(asked))
    _, few, many = counted  # the first one reads once what never changes
    assert few == many
