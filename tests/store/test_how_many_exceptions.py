"""How much a drop copies out: what is more stays whole in its partition, and holds none behind it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.contracts.samples import ROLLBACK, decided, drain, end_of, opened
from tests.scene.stored import Stored
from tests.store.past import MORE, SPAN, Scene, named, partitions
from txsaga.store import founding
from txsaga.store import partitions as spared
from txsaga.store.connection import transaction
from txsaga.store.store import Store
from txsaga.wiring.connecting import open_store

pytestmark = [pytest.mark.postgres, pytest.mark.rule("R13")]

LATE = """
WITH h AS (INSERT INTO half (txid, pgroup, qid, chunk, n, body) VALUES (99, 1, 1, 0, 1, '') RETURNING txid)
INSERT INTO op (txid, decision) SELECT txid, 2 FROM h"""
SETTLED = """
WITH h AS (
    INSERT INTO half (txid, pgroup, qid, chunk, n, body)
    SELECT 99, 1, 1, i, 1, '' FROM generate_series(1, 100) i RETURNING txid)
INSERT INTO op (txid, decision) SELECT DISTINCT txid, 2 FROM h"""


@pytest.fixture
def store(home_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(spared, "SPAN", SPAN)
    store = open_store(home_url)
    yield store
    store.close()


@pytest.fixture
def stored(home_url: str) -> Stored:
    return Stored(home_url)


@pytest.fixture
def scene(store: Store, stored: Stored) -> Scene:
    scene = Scene(store, stored)
    scene.crowd()
    return scene


class TestTooMuch:
    def left_whole(self, scene: Scene, stored: Stored) -> None:
        scene.leave()
        rows = [scene.rows(table) for table in ("half_0", "op_0", "log", "event")]
        stored.rows("SELECT setval('tx_seq', :last)", last=2 * SPAN + 10)
        scene.store.log.extend_partitions(SPAN)
        assert scene.drop() == 1
        assert partitions(stored) == named(0, 2, 3)
        assert [scene.rows(table) for table in ("half_0", "op_0", "log", "event")] == rows

    def test_more_than_a_tenth_of_its_rows_leaves_a_partition_whole_and_those_behind_go(
        self, scene: Scene, stored: Stored
    ) -> None:
        parked = [scene.parked(str(n)) for n in range(3)]
        assert scene.rows("half") == 29
        self.left_whole(scene, stored)
        stored.rows(LATE)
        assert scene.drop() == 1
        assert scene.rows("half_0") == len(parked)

    def test_so_do_more_rows_than_the_most(self, scene: Scene, stored: Stored) -> None:
        stored.rows("SELECT setval('tx_seq', 30)")
        scene.crowd(SPAN // 2)
        parked = scene.parked()
        stored.rows(MORE, txid=parked.txid)
        stored.rows(SETTLED)
        self.left_whole(scene, stored)

    def test_so_do_more_transactions_than_the_most_though_they_hold_no_message(
        self, scene: Scene, stored: Stored
    ) -> None:
        for n in range(SPAN // 10 + 1):
            scene.give_up(opened(scene.store, scene.group, str(n)).txid)
        self.left_whole(scene, stored)

    def test_so_do_more_bytes_than_the_most(
        self, scene: Scene, stored: Stored, monkeypatch: pytest.MonkeyPatch, home_url: str
    ) -> None:
        scene.parked("x" * 1_000)
        monkeypatch.setattr(spared, "BYTES", 999)
        open_store(home_url).close()
        self.left_whole(scene, stored)
        monkeypatch.setattr(spared, "BYTES", 10_000)
        open_store(home_url).close()
        assert scene.drop() == 1
        assert scene.rows("half_0") == 1

    def test_the_next_life_of_the_store_delivers_nothing_of_it_again(
        self, scene: Scene, stored: Stored, home_url: str
    ) -> None:
        for n in range(3):
            scene.parked(str(n))
        self.left_whole(scene, stored)
        head = scene.store.log.bounds([scene.qid])[scene.qid].head
        with transaction(scene.store.engine) as connection:
            founding.adopt(connection, stored.namespace)
        with closing(open_store(home_url)) as store:
            drain(store)
            assert store.log.bounds([scene.qid])[scene.qid].head == head

    def test_what_comes_late_into_what_was_copied_holds_it(self, scene: Scene, stored: Stored) -> None:
        parked = scene.parked()
        scene.leave()
        assert scene.drop() == 1
        stored.rows("INSERT INTO half (txid, pgroup, qid, chunk, n, body) VALUES (99, 1, 1, 0, 1, '')")
        decided(scene.store, end_of(parked, ROLLBACK))
        assert scene.drop() == 0
        assert stored.rows("SELECT txid FROM half ORDER BY txid") == [(parked.txid,), (99,)]
