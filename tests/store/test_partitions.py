"""Partitions are there ahead of the numbers, and go only when nobody needs anything in them."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial

import pytest
from sqlalchemy import Engine, NullPool, create_engine, event, text

from tests.contracts.samples import (
    COMMIT,
    LONG,
    ROLLBACK,
    add,
    answered,
    claimed,
    decided,
    drain,
    end_of,
    is_held,
    new_group,
    opened,
    park,
    prepared,
    published,
    row,
    settle,
    start,
)
from tests.scene.stored import Stored
from tests.store.past import SPAN, Scene, named, partitions
from txsaga.consume.claim import ClaimHold
from txsaga.core.lifecycle import TxEvent
from txsaga.core.records import Half
from txsaga.core.topic import TopicType
from txsaga.errors import StoreError
from txsaga.store import partitions as dropping
from txsaga.store.connection import parse_url
from txsaga.store.store import Store
from txsaga.wiring.connecting import open_store

pytestmark = [pytest.mark.postgres, pytest.mark.rule("R13")]

LATE = "INSERT INTO {s}.half (txid, pgroup, qid, chunk, n, body) VALUES (50, 1, 1, 0, 1, '')"


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
def callers(home_url: str) -> Engine:
    return create_engine(parse_url(home_url)[0], poolclass=NullPool)


@pytest.fixture
def scene(store: Store, stored: Stored) -> Scene:
    return Scene(store, stored)


class TestAdding:
    def test_partitions_are_added_until_the_numbers_have_room(self, store: Store, stored: Stored) -> None:
        assert partitions(stored) == named(0, 1)
        assert store.log.extend_partitions(5 * SPAN) == 8
        assert store.log.extend_partitions(5 * SPAN) == 0
        assert partitions(stored) == named(0, 1, 2, 3, 4, 5)

    def test_a_new_partition_is_like_the_first_ones(self, store: Store, stored: Stored) -> None:
        store.log.extend_partitions(3 * SPAN)
        look = """
            SELECT 'storage', attstorage::text FROM pg_attribute
             WHERE attrelid = to_regclass(:name) AND attname = 'body'
            UNION SELECT 'index', regexp_replace(pg_get_indexdef(indexrelid), '^.* USING ', '') FROM pg_index
             WHERE indrelid = to_regclass(:name)
            UNION SELECT 'constraint', pg_get_constraintdef(oid) FROM pg_constraint
             WHERE conrelid = to_regclass(:name)
            UNION SELECT attname, pg_get_expr(adbin, adrelid) FROM pg_attribute
              LEFT JOIN pg_attrdef ON (adrelid, adnum) = (attrelid, attnum)
             WHERE attrelid = to_regclass(:name) AND attnum > 0
             ORDER BY 1, 2"""
        for table in ("half", "op"):
            first, newest = (stored.rows(look, name=f"{table}_{n}") for n in (0, 3))
            assert first == newest
        assert ("storage", "e") in stored.rows(look, name="half_3")
        assert ("index", "btree (xid)") in stored.rows(look, name="op_3")

    def test_without_room_nothing_is_stored_and_the_error_says_why(self, store: Store, stored: Stored) -> None:
        (qid,), group = store.registry.create_topic("orders", TopicType.TRANSACTION, 1).qids, new_group(store)
        stored.rows("SELECT setval('tx_seq', :last)", last=2 * SPAN - 1)
        with pytest.raises(StoreError, match=r"no partition.*; run `txsaga engine`, it makes room") as told:
            published(store, group, row(qid, "a"))
        assert "\n" not in str(told.value)
        assert stored.value("SELECT count(*) FROM half") == 0
        store.log.extend_partitions(SPAN)
        assert published(store, group, row(qid, "b")).txid == 2 * SPAN + 1

    def test_a_batch_may_lie_across_two_partitions(self, store: Store, stored: Stored) -> None:
        (qid,), group = store.registry.create_topic("orders", TopicType.TRANSACTION, 1).qids, new_group(store)
        stored.rows("SELECT setval('tx_seq', :last)", last=SPAN - 3)
        receipts = store.halves.write([Half(group, [row(qid, str(n))]) for n in range(5)], ()).receipts
        ends = [end_of(answered(receipt), COMMIT) for receipt in receipts]
        assert all(answered(standing).won for standing in store.halves.write((), ends).standings)
        drain(store)
        assert [entry.txid for entry in store.log.fetch(qid, 0, 10)] == list(range(SPAN - 2, SPAN + 3))
        assert [stored.value(f"SELECT count(*) FROM {table}_{n}") for table in ("half", "op") for n in (0, 1)] == [
            2, 3, 2, 3,
        ]  # fmt: skip

    def test_a_long_reader_and_a_busy_producer_do_not_hold_it_up(
        self, store: Store, stored: Stored, callers: Engine
    ) -> None:
        (qid,), group = store.registry.create_topic("orders", TopicType.TRANSACTION, 1).qids, new_group(store)
        with callers.connect() as busy:
            busy.execute(text(f"SELECT count(*) FROM {stored.namespace}.half"))
            busy.execute(text(f"INSERT INTO {stored.namespace}.op (txid, decision) VALUES (99, 2)"))
            assert store.log.extend_partitions(3 * SPAN) == 4
            assert published(store, group, row(qid, "a")).txid == 1

    def test_rivals_add_each_partition_once(self, store: Store, stored: Stored, home_url: str) -> None:
        stores = [Store.open(home_url) for _ in range(3)]
        adding = [start(partial(each.log.extend_partitions, 10 * SPAN)) for each in stores]
        assert sorted(each.result() for each in adding) == [0, 0, 18]
        for each in stores:
            each.close()
        assert partitions(stored) == named(*range(11))


class TestDropping:
    def test_what_everybody_is_done_with_goes(self, scene: Scene, stored: Stored) -> None:
        keyed = opened(scene.store, scene.group)
        add(scene.store, keyed, 1, row(scene.qid, "keyed"))
        settle(scene.store, keyed, COMMIT)
        drain(scene.store)
        scene.read_to(scene.claim, 11)
        scene.age()
        scene.move_on()
        assert scene.drop() == 1
        assert partitions(stored) == named(1, 2)
        tables = ("half", "op", "log", "tx", "part", "doubt", "event")
        assert {table: stored.value(f"SELECT count(*) FROM {table}") for table in tables} == dict.fromkeys(tables, 0)

    def test_the_records_of_others_stay(self, scene: Scene, stored: Stored) -> None:
        scene.age()
        scene.move_on()
        life = opened(scene.store, scene.group)
        settle(scene.store, life, ROLLBACK)
        assert scene.drop() == 1
        assert [each.who for each in scene.store.overview.history(life.txid)] == ["contract"]

    @pytest.mark.req("RMQ-19")
    def test_what_is_kept_for_ever_is_seen_without_a_look_at_halves(self, scene: Scene) -> None:
        kept_for_ever(scene)
        scene.age()
        scene.move_on()
        asked: list[str] = []
        event.listen(scene.store.engine, "before_cursor_execute", lambda *seen: asked.append(seen[2]))
        assert scene.drop() == 0
        assert [sql for sql in asked if ".log l" in sql]
        assert [sql for sql in asked if ".half h" in sql or ".op o" in sql] == []

    def test_a_rolled_back_half_stays_until_its_partition_goes(self, scene: Scene, stored: Stored) -> None:
        never = "SELECT count(*) FROM half JOIN op USING (txid) WHERE decision = 2"
        scene.age()
        assert stored.value(never) == 1
        scene.move_on()
        scene.drop()
        assert stored.value(never) == 0

    def test_the_tail_moves_and_the_rest_stays_readable(self, scene: Scene) -> None:
        scene.age()
        scene.move_on()
        published(scene.store, scene.group, row(scene.qid, "new"))
        drain(scene.store)
        assert scene.drop() == 1
        assert scene.store.log.bounds([scene.qid])[scene.qid] == (10, 11)
        assert [entry.base for entry in scene.store.log.fetch(scene.qid, 10, 10)] == [10]

    def test_the_partition_that_numbers_are_taken_from_stays(self, scene: Scene, stored: Stored) -> None:
        scene.age()
        assert scene.drop() == 0
        stored.rows("SELECT setval('tx_seq', :last)", last=SPAN - 1)
        assert scene.drop() == 0
        assert partitions(stored) == named(0, 1)

    def test_only_the_oldest_run_goes(self, scene: Scene, stored: Stored) -> None:
        scene.age()
        scene.move_on()
        undecided = prepared(scene.store, scene.group, row(scene.qid, "when?"))
        stored.rows("SELECT setval('tx_seq', :last)", last=4 * SPAN)
        scene.store.log.extend_partitions(SPAN)
        assert scene.drop() == 1
        assert partitions(stored) == named(1, 2, 3, 4, 5)
        decided(scene.store, end_of(undecided, ROLLBACK))
        assert scene.drop() == 3
        assert partitions(stored) == named(4, 5)

    def test_a_long_reader_makes_it_wait_for_another_round_and_stalls_nobody(
        self, scene: Scene, stored: Stored, callers: Engine
    ) -> None:
        scene.age()
        scene.move_on()
        with callers.connect() as reader:
            reader.execute(text(f"SELECT count(*) FROM {stored.namespace}.half"))
            dropping = start(scene.drop)
            published(scene.store, scene.group, row(scene.qid, "new"))
            assert dropping.result(timeout=5) == 0
        assert partitions(stored) == named(0, 1, 2)
        assert scene.drop() == 1

    def test_a_write_under_way_in_it_is_not_lost(self, scene: Scene, stored: Stored, callers: Engine) -> None:
        scene.age()
        with callers.begin() as writer:
            writer.execute(text(LATE.format(s=stored.namespace)))
            scene.move_on()
            assert scene.drop() == 0
        assert scene.drop() == 0
        assert stored.value("SELECT count(*) FROM half WHERE txid = 50") == 1

    def test_a_write_that_commits_while_it_waits_for_its_lock_is_seen(
        self, scene: Scene, stored: Stored, callers: Engine
    ) -> None:
        scene.age()
        scene.move_on()
        with callers.begin() as writer:
            writer.execute(text(LATE.format(s=stored.namespace)))
            dropping = start(scene.drop)
            assert is_held(dropping)
        assert dropping.result() == 0
        assert stored.value("SELECT count(*) FROM half WHERE txid = 50") == 1


def undecided(scene: Scene) -> Callable[[], object]:
    receipt = prepared(scene.store, scene.group, row(scene.qid, "when?"))
    return lambda: decided(scene.store, end_of(receipt, ROLLBACK))


def parked_half(scene: Scene) -> Callable[[], object]:
    receipt = prepared(scene.store, scene.group, row(scene.qid, "when?"))
    scene.stored.rows("INSERT INTO doubt (txid, pgroup) VALUES (:t, :g)", t=receipt.txid, g=receipt.group)
    park(scene.store, receipt.txid, "out of checks")
    return lambda: decided(scene.store, end_of(receipt, ROLLBACK))


def keyed(scene: Scene, *events: TxEvent) -> Callable[[], object]:
    life = opened(scene.store, scene.group)
    with scene.store.ledgers.open() as ledger:
        for each in events:
            ledger.move(life.txid, each)
    return lambda: settle(scene.store, life, ROLLBACK)


def open_key(scene: Scene) -> Callable[[], object]:
    return keyed(scene)


def ended_key(scene: Scene) -> Callable[[], object]:
    return keyed(scene, TxEvent.SEAL)


def parked_key(scene: Scene) -> Callable[[], object]:
    return keyed(scene, TxEvent.SEAL, TxEvent.PARK)


def not_given_out(scene: Scene) -> Callable[[], object]:
    (qid,) = scene.topic("late", timedelta(0))
    published(scene.store, scene.group, row(qid, "a"))

    def give_out() -> None:
        drain(scene.store)
        scene.read_to(claimed(scene.store, qid), 1)

    return give_out


def unread_by_one_group(scene: Scene) -> Callable[[], object]:
    claim = claimed(scene.store, scene.qid, group="archive", member="berta")
    claim = scene.read_to(claim, 9, "berta")
    return lambda: scene.read_to(claim, 10, "berta")


def in_the_hands_of_a_member(scene: Scene) -> Callable[[], object]:
    scene.store.queues.create_cursors("workers", {scene.qid: 0})
    claim = scene.store.claims.take_new("workers", [scene.qid], 0, 60, ClaimHold("anna", 3600))
    assert claim is not None
    return lambda: scene.store.claims.ack([claim])


def within_retention(scene: Scene) -> Callable[[], object]:
    (qid,) = scene.topic("kept", 5 * LONG)
    published(scene.store, scene.group, row(qid, "a"))
    drain(scene.store)
    scene.read_to(claimed(scene.store, qid), 1)

    def age() -> None:
        for _ in range(3):
            scene.age()

    return age


def kept_for_ever(scene: Scene) -> Callable[[], object]:
    (qid,) = scene.topic("kept", None)
    published(scene.store, scene.group, row(qid, "a"))
    drain(scene.store)
    scene.read_to(claimed(scene.store, qid), 1)
    return lambda: scene.stored.rows("UPDATE topic SET retention_seconds = 0 WHERE name = 'kept'")


@pytest.mark.parametrize(
    "hindrance",
    [
        undecided,
        parked_half,
        open_key,
        ended_key,
        parked_key,
        not_given_out,
        unread_by_one_group,
        in_the_hands_of_a_member,
        within_retention,
        kept_for_ever,
    ],
)
def test_a_partition_stays_while_one_thing_in_it_is_needed(
    scene: Scene, stored: Stored, hindrance: Callable[[Scene], Callable[[], object]]
) -> None:
    remove = hindrance(scene)
    scene.age()
    scene.move_on()
    assert scene.drop() == 0
    assert partitions(stored) == named(0, 1, 2)
    remove()
    assert scene.drop() == 1
    assert partitions(stored) == named(1, 2)
