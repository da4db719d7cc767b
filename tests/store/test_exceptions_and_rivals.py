"""Whoever is at a parked transaction while its partition is dropped: both get done, in either order, or one waits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import text

from tests.contracts.samples import COMMIT, PATIENCE, ROLLBACK, decided, drain, end_of, is_held, start
from tests.scene.patience import eventually
from tests.scene.probe import Probe, pid_of
from tests.scene.stored import Stored
from tests.store.past import SPAN, Scene, named, partitions
from txsaga.store import partitions as dropping
from txsaga.store.store import Store
from txsaga.wiring.connecting import open_store

pytestmark = [pytest.mark.postgres, pytest.mark.rule("R13")]

TABLES = "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'"
DECIDED = "INSERT INTO op (txid, decision) VALUES (:txid, {})"


@pytest.fixture
def store_url(home_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the URL of a fresh store with small partitions."""
    monkeypatch.setattr(dropping, "SPAN", SPAN)
    open_store(home_url).close()
    return home_url


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    store = Store.open(store_url)
    yield store
    store.close()


@pytest.fixture
def scene(store: Store, store_url: str) -> Scene:
    """Give a store with a parked transaction in a partition that is past."""
    scene = Scene(store, Stored(store_url))
    scene.crowd()
    scene.receipt = scene.parked("late")
    scene.leave()
    return scene


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a drop wait for its first lock for as long as a test needs it to."""
    monkeypatch.setattr(dropping, "LOCK_TIMEOUT", "20s")


@pytest.fixture
def stubborn(patient: None, store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it wait so long for every lock."""
    monkeypatch.setattr(dropping, "LOCKED_TIMEOUT", "20s")
    open_store(store_url).close()


def untouched(scene: Scene) -> bool:
    """Tell whether the drop has done nothing."""
    assert sorted(name for (name,) in scene.stored.rows(TABLES) if "spared" in name) == []
    return partitions(scene.stored) == named(0, 1, 2) and scene.rows("op_0") > 1


def delivered(scene: Scene) -> bool:
    """Tell whether the parked message is the last one that readers are given."""
    drain(scene.store)
    head = scene.store.log.bounds([scene.qid])[scene.qid].head
    return [entry.txid for entry in scene.store.log.fetch(scene.qid, head - 1, 9)] == [scene.receipt.txid]


class TestDeciding:
    def test_a_decision_under_way_is_given_way_to(self, scene: Scene, probe: Probe) -> None:
        with probe.session() as person:
            person.execute(text(DECIDED.format(1)), {"txid": scene.receipt.txid})
            assert scene.drop() == 0
            assert untouched(scene)
            person.commit()
        assert scene.drop() == 0
        assert delivered(scene)

    @pytest.mark.usefixtures("patient")
    @pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
    def test_one_that_commits_while_the_drop_waits_for_it_is_seen(
        self, scene: Scene, probe: Probe, decision: int
    ) -> None:
        with probe.session() as person:
            person.execute(text(DECIDED.format(int(decision))), {"txid": scene.receipt.txid})
            dropped = start(scene.drop)
            probe.wait_for_block(pid_of(person))
            person.commit()
        done = dropped.result(PATIENCE)
        if decision is COMMIT:
            assert done == 0
            assert delivered(scene)
        else:
            assert done == 1
            assert partitions(scene.stored) == named(1, 2)

    @pytest.mark.usefixtures("stubborn")
    def test_one_that_comes_while_the_drop_is_under_way_finds_the_copy(self, scene: Scene, probe: Probe) -> None:
        with probe.session() as stop:
            stop.execute(text("SELECT FROM queue FOR UPDATE"))  # a drop moves the tail last of all
            dropped = start(scene.drop)
            drop = probe.wait_for_block(pid_of(stop))
            deciding = start(lambda: decided(scene.store, end_of(scene.receipt, COMMIT)))
            probe.wait_for_block(drop)
            stop.rollback()
            assert dropped.result(PATIENCE) == 1
        assert deciding.result(PATIENCE).won
        assert delivered(scene)

    @pytest.mark.usefixtures("patient")
    def test_one_that_the_drop_and_a_reader_keep_waiting_finds_the_copy(self, scene: Scene, probe: Probe) -> None:
        with probe.session() as reader:
            reader.execute(text("LOCK TABLE ONLY half IN ACCESS SHARE MODE"))
            dropped = start(scene.drop)
            drop = probe.wait_for_block(pid_of(reader))
            deciding = start(lambda: decided(scene.store, end_of(scene.receipt, COMMIT)))
            probe.wait_for_block(drop)
            reader.commit()
            assert dropped.result(PATIENCE) == 1
        assert deciding.result(PATIENCE).won
        assert delivered(scene)

    def test_one_that_waits_for_the_copy_is_given_way_to_and_nobody_is_locked_up(
        self, scene: Scene, probe: Probe
    ) -> None:
        with probe.session() as stop:
            stop.execute(text("CREATE TABLE half_0_spared ()"))  # a drop that has shut the partition waits here
            dropped = start(scene.drop)
            (drop,) = eventually(lambda: probe.blocked_by(pid_of(stop)), "the drop before its copy")
            deciding = start(lambda: decided(scene.store, end_of(scene.receipt, COMMIT)))
            eventually(lambda: probe.blocked_by(drop), "a decision behind the drop")
            stop.rollback()
            assert dropped.result(PATIENCE) == 0
        assert deciding.result(PATIENCE).won
        assert untouched(scene)
        assert delivered(scene)


class TestResuming:
    def test_one_that_is_resumed_meanwhile_is_copied_too_and_asked_about(self, scene: Scene) -> None:
        with scene.store.ledgers.open() as ledger:
            assert ledger.resume(scene.receipt.txid)
            assert scene.drop() == 1
        assert scene.stored.rows("SELECT txid FROM half_0") == [(scene.receipt.txid,)]
        assert [doubt.txid for doubt in scene.store.doubts.due(9)] == [scene.receipt.txid]
        assert decided(scene.store, end_of(scene.receipt, COMMIT)).won

    @pytest.mark.usefixtures("patient")
    def test_one_that_is_resumed_behind_the_last_look_is_copied_with_what_is_known_of_it(
        self, scene: Scene, probe: Probe
    ) -> None:
        with probe.session() as reader:
            reader.execute(text("LOCK TABLE ONLY half IN ACCESS SHARE MODE"))
            dropped = start(scene.drop)
            probe.wait_for_block(pid_of(reader))
            with scene.store.ledgers.open() as ledger:
                assert ledger.resume(scene.receipt.txid)
            reader.commit()
            assert dropped.result(PATIENCE) == 1
        (listed,) = scene.store.overview.doubts(limit=9)
        assert (listed.txid, listed.checks.parked) == (scene.receipt.txid, None)
        assert [each.what for each in scene.store.overview.history(listed.txid)] == ["PARKED"]
        assert [doubt.txid for doubt in scene.store.doubts.due(9)] == [scene.receipt.txid]

    def test_one_that_was_resumed_before_holds_its_partition(self, scene: Scene) -> None:
        with scene.store.ledgers.open() as ledger:
            assert ledger.resume(scene.receipt.txid)
        assert scene.drop() == 0
        assert untouched(scene)


class TestGivingWay:
    def test_a_long_reader_makes_it_wait_for_another_round(self, scene: Scene, probe: Probe) -> None:
        with probe.session() as reader:
            reader.execute(text("SELECT count(*) FROM half"))
            assert scene.drop() == 0
            assert untouched(scene)
        assert scene.drop() == 1

    @pytest.mark.usefixtures("patient")
    def test_a_reader_is_waited_for_longer_than_those_who_came_behind_it(self, scene: Scene, probe: Probe) -> None:
        with probe.session() as reader:
            reader.execute(text("LOCK TABLE ONLY half IN ACCESS SHARE MODE"))
            dropped = start(scene.drop)
            probe.wait_for_block(pid_of(reader))
            assert all(is_held(dropped) for _ in range(3))  # for longer than it waits for what comes behind
            reader.commit()
            assert dropped.result(PATIENCE) == 1

    @pytest.mark.kill
    @pytest.mark.usefixtures("patient")
    def test_killed_in_the_middle_it_has_done_nothing(self, scene: Scene, probe: Probe) -> None:
        with probe.session() as reader:
            reader.execute(text("LOCK TABLE ONLY half IN ACCESS SHARE MODE"))
            dropped = start(scene.drop)
            drop = probe.wait_for_block(pid_of(reader))
            made = "SELECT count(*) FROM pg_locks WHERE pid = :pid AND mode = 'AccessExclusiveLock' AND granted"
            assert probe.value(made, pid=drop) > 0  # the copies, which nobody else sees
            probe.run(f"SELECT pg_terminate_backend({drop})")
            assert dropped.result(PATIENCE) == 0
        assert untouched(scene)
        assert scene.drop() == 1
        assert decided(scene.store, end_of(scene.receipt, COMMIT)).won

    def test_rivals_copy_a_partition_once(self, scene: Scene, store_url: str) -> None:
        rival = Store.open(store_url)
        dropping = [start(store.log.drop_partitions) for store in (scene.store, rival)]
        assert sorted(each.result(PATIENCE) for each in dropping) == [0, 1]
        rival.close()
        assert scene.rows("half_0") == 1
