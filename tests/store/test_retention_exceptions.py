"""What is parked, or due far ahead, holds no partition: the drop copies it out, and nobody sees a difference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.contracts.samples import (
    COMMIT,
    ROLLBACK,
    add,
    answered,
    decide_life,
    decided,
    drain,
    end_of,
    opened,
    prepared,
    published,
    row,
)
from tests.scene.stored import Stored
from tests.store.past import MORE, SPAN, Scene, named, partitions
from txsaga.core.chunk import BODY, Chunk
from txsaga.core.lifecycle import TxEvent
from txsaga.core.records import Due, End, Half, Receipt, TxRecord
from txsaga.core.topic import TopicType
from txsaga.store import partitions as dropping
from txsaga.store.store import Store
from txsaga.wiring.connecting import open_store

pytestmark = [pytest.mark.postgres, pytest.mark.rule("R13")]

MANY = timedelta(days=365)


@pytest.fixture
def store(home_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(dropping, "SPAN", SPAN)
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


def seen(scene: Scene, txid: int) -> list[object]:
    """Look at a transaction in every way that somebody may."""
    store, found = scene.store, scene.store.doubts.of(txid)
    doubt = found and found._replace(age=timedelta(0))
    doubts = [view for view in store.overview.doubts(limit=9) if view.txid == txid]
    listed = [replace(view, age=timedelta(0)) for view in doubts]
    counted = replace(store.overview.undecided(), oldest=None)
    lying = scene.stored.rows("SELECT * FROM half WHERE txid = :txid ORDER BY part, attempt, qid, chunk", txid=txid)
    shown = [store.halves.views(txid), store.halves.contents(txid), store.overview.trace(txid)]
    return [doubt, listed, counted, lying, *shown, store.overview.history(txid), store.overview.checks(txid)]


def new_messages(scene: Scene) -> list[str]:
    """Tick, read what the group of the scene has not read, and go on behind it."""
    drain(scene.store)
    entries = scene.store.log.fetch(scene.qid, scene.claim.offset, 100)
    head = scene.store.log.bounds([scene.qid])[scene.qid].head
    scene.claim = scene.read_to(scene.claim, head)
    return [body.decode() for entry in entries for body in Chunk(entry.body).column(BODY) or () if body]


class TestParked:
    def test_only_what_is_parked_is_left_of_its_partition(self, scene: Scene, stored: Stored) -> None:
        parked = scene.parked()
        scene.leave()
        assert scene.drop() == 1
        assert partitions(stored) == named(0, 1, 2)
        assert stored.rows("SELECT txid FROM half") == [(parked.txid,)]
        assert {table: scene.rows(table) for table in ("op", "log", "doubt", "event")} == {
            **{"op": 0, "log": 0},
            **{"doubt": 1, "event": 1},
        }

    def test_it_looks_the_same_in_every_way(self, scene: Scene) -> None:
        parked = scene.parked("a", "b")
        scene.leave()
        before = seen(scene, parked.txid)
        assert scene.drop() == 1
        assert seen(scene, parked.txid) == before
        assert before[0] is not None
        assert before[1]

    def test_it_is_copied_once_and_the_next_rounds_leave_it_alone(self, scene: Scene, stored: Stored) -> None:
        parked = scene.parked()
        scene.leave()
        assert scene.drop() == 1
        before = stored.half(parked.txid)
        assert [scene.drop() for _ in range(2)] == [0, 0]
        assert stored.half(parked.txid) == before

    def test_committed_by_hand_it_is_delivered_and_then_its_partition_goes(self, scene: Scene, stored: Stored) -> None:
        parked = scene.parked("late")
        scene.leave()
        head = scene.store.log.bounds([scene.qid])[scene.qid].head
        assert scene.drop() == 1
        assert scene.store.log.bounds([scene.qid])[scene.qid] == (head, head)
        with scene.store.ledgers.open() as ledger:
            assert ledger.write_op(parked.txid, COMMIT, from_check=True, keyed=False)
        drain(scene.store)
        assert scene.drop() == 0
        assert new_messages(scene) == ["late"]
        assert scene.drop() == 0
        scene.age()
        assert scene.drop() == 1
        assert partitions(stored) == named(1, 2)
        assert {table: scene.rows(table) for table in ("half", "op", "log", "doubt", "event")} == dict.fromkeys(
            ("half", "op", "log", "doubt", "event"), 0
        )

    def test_its_producer_may_still_decide_it(self, scene: Scene) -> None:
        first, second = scene.parked("first"), scene.parked("second")
        scene.leave()
        assert scene.drop() == 1
        assert decided(scene.store, end_of(first, COMMIT)).won
        assert decided(scene.store, end_of(second, ROLLBACK)).won
        assert not decided(scene.store, end_of(first, ROLLBACK)).won
        assert new_messages(scene) == ["first"]

    def test_resumed_it_is_asked_about_again_and_holds_its_partition_until_it_is_settled(
        self, scene: Scene, stored: Stored
    ) -> None:
        parked = scene.parked()
        scene.leave()
        assert scene.drop() == 1
        with scene.store.ledgers.open() as ledger:
            assert ledger.resume(parked.txid)
        assert [doubt.txid for doubt in scene.store.doubts.due(9)] == [parked.txid]
        stored.rows("SELECT setval('tx_seq', :last)", last=2 * SPAN + 10)
        scene.store.log.extend_partitions(SPAN)
        assert scene.drop() == 0
        scene.give_up(parked.txid)
        assert scene.drop() == 1
        assert partitions(stored) == named(0, 2, 3)

    def test_the_partitions_behind_it_go_and_what_they_left_too(self, scene: Scene, stored: Stored) -> None:
        parked = scene.parked("late")
        scene.leave()
        keyed = opened(scene.store, scene.group)
        with scene.store.ledgers.open() as ledger:
            decide_life(ledger, keyed.txid, ROLLBACK)
        scene.crowd(5)
        scene.age()
        stored.rows("SELECT setval('tx_seq', :last)", last=3 * SPAN)
        scene.store.log.extend_partitions(SPAN)
        assert scene.drop() == 3
        assert partitions(stored) == named(0, 3, 4)
        assert [scene.rows(table) for table in ("half", "op", "log", "tx", "doubt", "event")] == [1, 0, 0, 0, 1, 1]
        assert decided(scene.store, end_of(parked, COMMIT)).won
        assert new_messages(scene) == ["late"]

    def test_a_copied_partition_is_like_the_first_ones(self, scene: Scene, stored: Stored) -> None:
        scene.parked()
        scene.leave()
        assert scene.drop() == 1
        for table in ("half", "op"):
            copied, built = (stored.rows(LOOK, name=f"{table}_{n}") for n in (0, 1))
            assert copied == built
        assert ("storage", "e") in stored.rows(LOOK, name="half_0")
        assert ("guarded", "true") in stored.rows(LOOK, name="half_0")
        assert stored.rows("SELECT relname FROM pg_class WHERE relname LIKE '%spared' AND relkind = 'r'") == []

    def test_it_can_be_copied_again_once_most_of_it_is_settled(self, scene: Scene, stored: Stored) -> None:
        stored.rows("SELECT setval('tx_seq', 40)")
        scene.crowd(50)
        parked = [scene.parked(str(n)) for n in range(8)]
        scene.leave()
        assert scene.drop() == 1
        assert scene.rows("half") == 8
        stored.rows(MORE, txid=parked[-1].txid)
        for receipt in parked[:-1]:
            decided(scene.store, end_of(receipt, ROLLBACK))
        assert scene.drop() == 0
        assert scene.rows("half_0") == 20
        stored.rows("DELETE FROM half WHERE txid = :txid AND chunk > 0", txid=parked[-1].txid)
        stored.rows(MORE, txid=parked[0].txid)
        assert scene.drop() == 1
        assert stored.rows("SELECT txid FROM half") == [(parked[-1].txid,)]
        assert scene.rows("op_0") == 0


LOOK = """
SELECT 'storage', attstorage::text FROM pg_attribute WHERE attrelid = to_regclass(:name) AND attname = 'body'
UNION SELECT 'index', regexp_replace(pg_get_indexdef(indexrelid), '^.* USING ', '') FROM pg_index
 WHERE indrelid = to_regclass(:name)
UNION SELECT 'constraint', pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = to_regclass(:name)
UNION SELECT 'guarded', relrowsecurity::text FROM pg_class WHERE oid = to_regclass(:name)
UNION SELECT 'owner', relowner::regrole::text FROM pg_class WHERE oid = to_regclass(:name)
UNION SELECT 'grants', coalesce(relacl::text, '') FROM pg_class WHERE oid = to_regclass(:name)
UNION SELECT attname, pg_get_expr(adbin, adrelid) FROM pg_attribute
  LEFT JOIN pg_attrdef ON (adrelid, adnum) = (attrelid, attnum) WHERE attrelid = to_regclass(:name) AND attnum > 0
 ORDER BY 1, 2"""


class TestKeyed:
    @pytest.fixture
    def life(self, scene: Scene) -> TxRecord:
        """Give a parked life with a message, a bound offset and a place for a late body."""
        life = opened(scene.store, scene.group, "order-1")
        add(scene.store, life, 1, row(scene.qid, "never"), win=False)
        with scene.store.ledgers.open() as ledger:
            ledger.add(replace(life, owner=2), 1, [row(scene.qid, "keyed")])
            ledger.win(life.txid, 1, 2)
            ledger.move(life.txid, TxEvent.SEAL)
            ledger.move(life.txid, TxEvent.PARK)
        scene.give_up(life.txid)
        return life

    def test_it_looks_the_same_and_its_key_is_remembered_the_others_are_not(self, scene: Scene, life: TxRecord) -> None:
        done = opened(scene.store, scene.group, "order-2")
        with scene.store.ledgers.open() as ledger:
            decide_life(ledger, done.txid, COMMIT)
        scene.leave()
        before = seen(scene, life.txid)
        assert scene.drop() == 1
        assert seen(scene, life.txid) == before
        with scene.store.ledgers.open() as ledger:
            assert ledger.create(scene.group, "order-1", 1) is None
            assert ledger.create(scene.group, "order-2", 1) is not None

    def test_committed_it_delivers_the_attempt_that_counts(self, scene: Scene, life: TxRecord) -> None:
        scene.leave()
        assert scene.drop() == 1
        with scene.store.ledgers.open() as ledger:
            decide_life(ledger, life.txid, COMMIT)
        assert new_messages(scene) == ["keyed"]

    def test_one_without_messages_keeps_a_place_for_its_decision(self, scene: Scene, stored: Stored) -> None:
        life = opened(scene.store, scene.group)
        with scene.store.ledgers.open() as ledger:
            ledger.move(life.txid, TxEvent.SEAL)
            ledger.move(life.txid, TxEvent.PARK)
        scene.give_up(life.txid)
        scene.leave()
        assert scene.drop() == 1
        assert [scene.drop(), scene.rows("half"), scene.rows("tx")] == [0, 0, 1]
        with scene.store.ledgers.open() as ledger:
            decide_life(ledger, life.txid, ROLLBACK)
        assert scene.drop() == 1
        assert partitions(stored) == named(1, 2)
        assert scene.rows("tx") == 0

    def test_one_that_is_open_holds_everything(self, scene: Scene, stored: Stored) -> None:
        opened(scene.store, scene.group)
        scene.parked()
        scene.leave()
        assert scene.drop() == 0
        assert partitions(stored) == named(0, 1, 2)
        assert scene.rows("op") > 0


class TestLater:
    @pytest.fixture
    def qid(self, scene: Scene) -> int:
        return scene.store.registry.create_topic("later", TopicType.DELAY, 1, retention_seconds=0).qids[0]

    def later(self, scene: Scene, qid: int, text: str, after: timedelta) -> Receipt:
        half = Half(scene.group, [row(qid, text)], due=Due(after))
        return answered(scene.store.halves.write([half], ()).receipts[0])

    def test_what_is_due_far_ahead_is_copied_and_comes_at_its_time(
        self, scene: Scene, stored: Stored, qid: int
    ) -> None:
        waiting, recalled = (self.later(scene, qid, text, MANY) for text in ("a", "b"))
        scene.leave()
        before = seen(scene, waiting.txid)
        assert scene.drop() == 1
        assert seen(scene, waiting.txid) == before
        assert stored.rows("SELECT txid FROM half ORDER BY txid") == [(waiting.txid,), (recalled.txid,)]
        assert decided(scene.store, End(recalled.txid, recalled.group, recalled.token, ROLLBACK, recalls=True)).won
        stored.rows("UPDATE scheduled SET at = now()")
        assert scene.store.schedule.commit_due(10) == 1
        drain(scene.store)
        assert [Chunk(entry.body).column(BODY) for entry in scene.store.log.fetch(qid, 0, 9)] == [[b"a"]]
        assert scene.drop() == 1
        assert partitions(stored) == named(1, 2)
        assert scene.rows("scheduled") == 0

    def test_what_is_due_soon_holds_its_partition(self, scene: Scene, stored: Stored, qid: int) -> None:
        self.later(scene, qid, "a", timedelta(minutes=50))
        scene.leave()
        assert scene.drop() == 0
        assert scene.rows("op") > 0


@pytest.mark.req("RMQ-19")
def test_a_topic_that_is_kept_by_size_counts_what_lies_behind_and_not_what_was_dropped(
    scene: Scene, stored: Stored
) -> None:
    (qid,) = scene.store.registry.create_topic("sized", TopicType.TRANSACTION, 1, None, 3_000).qids
    parked, behind = scene.parked(), scene.topic("busy", timedelta(0))[0]
    for full in range(1, 6):
        published(scene.store, scene.group, row(qid, "x" * 1_000))
        drain(scene.store)
        stored.rows("UPDATE log SET at = at - interval '2 hours' WHERE qid = :qid", qid=scene.qid)
        stored.rows("SELECT setval('tx_seq', :last)", last=full * SPAN)
        scene.store.log.extend_partitions(SPAN)
        published(scene.store, scene.group, row(behind, "b"))
        drain(scene.store)
        assert scene.drop() == (1 if full > 3 else 0)
        assert scene.store.log.bounds([qid])[qid].tail == max(0, full - 3)
    assert partitions(stored) == named(0, 2, 3, 4, 5, 6)
    assert stored.rows("SELECT txid FROM half_0") == [(parked.txid,)]
    assert stored.value("SELECT sum(bytes) FROM weight WHERE low = 0") == 0


@pytest.mark.parametrize("held", ["undecided", "kept"])
def test_it_is_copied_only_when_nothing_else_holds_its_partition(scene: Scene, stored: Stored, held: str) -> None:
    scene.parked()
    other = prepared(scene.store, scene.group, row(scene.qid, "never"))
    scene.leave()
    if held == "kept":
        decided(scene.store, end_of(other, ROLLBACK))
        stored.rows("UPDATE log SET at = now() WHERE base = 4")
    before = [scene.rows(table) for table in ("half_0", "op_0", "log")]
    assert scene.drop() == 0
    assert [scene.rows(table) for table in ("half_0", "op_0", "log")] == before
    decided(scene.store, end_of(other, ROLLBACK))
    scene.age()
    assert scene.drop() == 1
    assert scene.rows("half_0") == 1
