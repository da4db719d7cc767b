"""The schedule on PostgreSQL: who meets there, and what a crash and a lost partition leave."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import text

from tests.contracts.samples import COMMIT, ROLLBACK, answered, decided, is_held, published, read, row, start
from tests.scene.stored import Stored
from txsaga.core.records import Due, End, Half, Receipt
from txsaga.core.topic import TopicType
from txsaga.store import partitions
from txsaga.store.store import Store
from txsaga.wiring.connecting import open_store

pytestmark = pytest.mark.postgres


@pytest.fixture
def stored(home_url: str) -> Stored:
    return Stored(home_url)


@pytest.fixture
def open_one(home_url: str) -> Iterator[Callable[[], Store]]:
    """Give a way to open stores of one namespace, each with lines of its own."""
    stores: list[Store] = []

    def opened() -> Store:
        stores.append(open_store(home_url))
        return stores[-1]

    yield opened
    for store in stores:
        store.close()


def later(store: Store, qid: int, text: str, seconds: float = 0.001) -> Receipt:
    group = store.registry.group("plain", transactional=False).id
    half = Half(group, [row(qid, text)], due=Due(timedelta(seconds=seconds)))
    return answered(store.halves.write([half], ()).receipts[0])


def recall(receipt: Receipt) -> End:
    return End(receipt.txid, receipt.group, receipt.token, ROLLBACK, recalls=True)


def test_a_recall_takes_the_row_off_the_schedule_and_a_late_one_finds_none(
    open_one: Callable[[], Store], stored: Stored
) -> None:
    store = open_one()
    (qid,) = store.registry.create_topic("later", TopicType.DELAY, 1).qids
    taken, kept = later(store, qid, "taken", 60), later(store, qid, "kept", 60)
    assert decided(store, recall(taken)).won
    assert stored.rows("SELECT txid FROM scheduled") == [(kept.txid,)]
    stored.rows("UPDATE scheduled SET at = now()")
    assert store.schedule.commit_due(10) == 1
    assert stored.rows("SELECT txid FROM scheduled") == []
    assert decided(store, recall(kept)).decision is COMMIT


def test_while_a_round_is_under_way_a_rival_does_nothing_and_a_recall_waits(
    open_one: Callable[[], Store], stored: Stored
) -> None:
    store, rival = open_one(), open_one()
    (qid,) = store.registry.create_topic("later", TopicType.DELAY, 1).qids
    receipt = later(store, qid, "a")
    stored.rows("UPDATE scheduled SET at = now() - interval '1 minute'")
    with store.engine.connect() as blocker:
        blocker.execute(text(f'SELECT FROM "{stored.namespace}".scheduled FOR UPDATE'))  # a round stops at its delete
        running = start(lambda: store.schedule.commit_due(10))
        assert is_held(running)
        assert rival.schedule.commit_due(10) == 0
        recalled = start(lambda: decided(rival, recall(receipt)))
        assert is_held(recalled)
        blocker.rollback()
        assert running.result(30) == 1
        standing = recalled.result(30)
    assert (standing.decision, standing.won) == (COMMIT, False)
    assert read(store, qid) == ["a"]


def test_whoever_is_first_at_a_message_there_is_one_decision_and_it_was_told(
    open_one: Callable[[], Store],
) -> None:
    stores = [open_one() for _ in range(3)]
    (qid,) = stores[0].registry.create_topic("later", TopicType.DELAY, 1).qids
    receipts = [later(stores[0], qid, str(n), 0.2 + n / 200) for n in range(60)]
    stop = threading.Event()

    def schedule(store: Store) -> None:
        while not stop.is_set():
            store.schedule.commit_due(7)

    with ThreadPoolExecutor(2) as pool:
        rounds = [pool.submit(schedule, store) for store in stores[1:]]
        told = {n: decided(stores[0], recall(receipts[n])).decision for n in reversed(range(60))}
        later(stores[0], qid, "last")
        while stores[0].overview.undecided().scheduled:
            pass
        stop.set()
        for each in rounds:
            each.result(30)
    assert [text for text in read(stores[0], qid) if text != "last"] == [str(n) for n in range(60) if told[n] is COMMIT]


def test_a_partition_with_a_message_that_waits_stays_and_one_that_goes_takes_the_row_along(
    open_one: Callable[[], Store], stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "SPAN", 10)
    store = open_one()
    topic = store.registry.create_topic("later", TopicType.DELAY, 1, retention_seconds=0)
    store.log.extend_partitions(30)
    receipt = later(store, topic.qids[0], "a", 3600)
    for n in range(25):
        decided(store, recall(later(store, topic.qids[0], str(n), 3600)))
    read(store, topic.qids[0])
    assert store.log.drop_partitions() == 0
    assert decided(store, End(receipt.txid, receipt.group, receipt.token, ROLLBACK, from_check=True)).won
    assert stored.rows("SELECT txid FROM scheduled") == [(receipt.txid,)]
    read(store, topic.qids[0])
    assert store.log.drop_partitions() > 0
    assert stored.rows("SELECT txid FROM scheduled") == []


def test_the_servers_clock_counts(open_one: Callable[[], Store], stored: Stored) -> None:
    store = open_one()
    (qid,) = store.registry.create_topic("later", TopicType.DELAY, 1).qids
    receipt = later(store, qid, "a", 90.5)
    published(store, receipt.group, row(qid, "b"))
    waits = stored.value("SELECT w.at - h.born FROM scheduled w JOIN half h USING (txid)")
    assert abs(waits - timedelta(seconds=90.5)) < timedelta(seconds=1)
