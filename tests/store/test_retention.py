"""What a topic keeps, by time and by size: whole partitions go once both readers and limits allow it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contracts.samples import (
    COMMIT,
    ROLLBACK,
    claimed,
    decided,
    drain,
    end_of,
    new_group,
    prepared,
    published,
    row,
)
from tests.scene.stored import Stored
from txsaga.core.topic import TopicType
from txsaga.store import partitions
from txsaga.store.store import Store
from txsaga.wiring.connecting import open_store

pytestmark = [pytest.mark.postgres, pytest.mark.rule("R13"), pytest.mark.req("RMQ-19")]

SPAN = 100
BODY = "x" * 1_000


@pytest.fixture
def stored(home_url: str) -> Stored:
    return Stored(home_url)


class Scene:
    """A store with one topic, whose partitions are filled one by one."""

    def __init__(self, store: Store, stored: Stored) -> None:
        self.store, self.stored = store, stored
        self.group, self.at = new_group(store), 0

    def topic(self, seconds: int | None = None, size: int | None = None, name: str = "orders") -> int:
        (qid,) = self.store.registry.create_topic(name, TopicType.TRANSACTION, 1, seconds, size).qids
        return qid

    def fill(self, *rows: tuple[int, str]) -> None:
        """Publish into the partition that is open, and go on with the next."""
        for qid, body in rows:
            published(self.store, self.group, row(qid, body))
        drain(self.store)
        self.at += SPAN
        self.stored.rows("SELECT setval('tx_seq', :last)", last=self.at)
        self.store.log.extend_partitions(SPAN)
        # Only a tick knows that nothing older is to come.
        published(self.store, self.group, row(self.topic(0, name="busy"), "b"))
        drain(self.store)

    def drop(self) -> int:
        return self.store.log.drop_partitions()

    def tail(self, qid: int) -> int:
        return self.store.log.bounds([qid])[qid].tail


@pytest.fixture
def scene(home_url: str, stored: Stored, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(partitions, "SPAN", SPAN)
    store = open_store(home_url)
    yield Scene(store, stored)
    store.close()


def test_what_nobody_reads_goes_when_its_time_is_over(scene: Scene, stored: Stored) -> None:
    qid = scene.topic(seconds=3600)
    scene.fill((qid, "a"))
    assert scene.drop() == 0
    stored.rows("UPDATE log SET at = at - interval '2 hours'")
    assert scene.drop() == 1
    assert scene.tail(qid) == 1


def test_a_message_goes_once_enough_bytes_lie_behind_it(scene: Scene) -> None:
    qid = scene.topic(size=2_000)
    for dropped in (0, 0, 1, 1):
        scene.fill((qid, BODY))
        assert scene.drop() == dropped
    assert scene.tail(qid) == 2


def test_bytes_of_other_topics_and_of_what_was_rolled_back_do_not_count(scene: Scene) -> None:
    qid, other = scene.topic(size=1_500), scene.topic(name="other")
    scene.fill((qid, BODY))
    never = prepared(scene.store, scene.group, row(qid, BODY * 10))
    scene.fill((other, BODY * 10))
    decided(scene.store, end_of(never, ROLLBACK))
    assert scene.drop() == 0
    scene.fill((qid, BODY * 2))
    assert scene.drop() == 1


def test_without_limits_messages_are_kept_for_ever(scene: Scene, stored: Stored) -> None:
    qid = scene.topic()
    for _ in range(3):
        scene.fill((qid, BODY))
    stored.rows("UPDATE log SET at = at - interval '10 years'")
    assert scene.drop() == 0


@pytest.mark.parametrize("over", ["time", "size"])
def test_of_two_limits_either_one_lets_a_message_go(scene: Scene, stored: Stored, over: str) -> None:
    qid = scene.topic(seconds=3600, size=1_000 if over == "size" else 1_000_000)
    for _ in range(2):
        scene.fill((qid, BODY))
    if over == "time":
        assert scene.drop() == 0
        stored.rows("UPDATE log SET at = at - interval '2 hours' WHERE qid = :qid AND base = 0", qid=qid)
    assert scene.drop() == 1
    assert scene.tail(qid) == 1


def test_what_a_group_has_not_read_stays_whatever_its_size(scene: Scene) -> None:
    qid = scene.topic(size=0)
    claim = claimed(scene.store, qid)
    scene.fill((qid, BODY))
    scene.fill((qid, BODY))
    assert scene.drop() == 0
    scene.store.queues.advance(claim, "anna", 1)
    assert scene.drop() == 1


def test_a_limit_that_is_set_later_counts_what_is_there(scene: Scene) -> None:
    qid = scene.topic()
    for _ in range(3):
        scene.fill((qid, BODY))
    assert scene.drop() == 0
    scene.store.registry.alter_topic("orders", None, 1_000)
    assert scene.drop() == 2


def test_a_message_that_was_decided_late_has_little_behind_it(scene: Scene) -> None:
    qid = scene.topic(size=2_000)
    late = prepared(scene.store, scene.group, row(qid, "late"))
    for _ in range(4):
        scene.fill((qid, BODY))
    decided(scene.store, end_of(late, COMMIT))
    drain(scene.store)
    assert scene.drop() == 0
    for _ in range(3):
        scene.fill((qid, BODY))
    assert scene.drop() == 5


def test_partitions_are_weighed_only_once_and_forgotten_with_their_messages(scene: Scene, stored: Stored) -> None:
    qid = scene.topic(size=2_000)
    for _ in range(3):
        scene.fill((qid, BODY))
    scene.drop()
    first = stored.rows("SELECT low, topic, bytes FROM weight ORDER BY low, topic")
    assert {low for low, _, _ in first} == {SPAN, 2 * SPAN}
    stored.rows("UPDATE weight SET bytes = 1 WHERE low = :low", low=SPAN)
    scene.drop()
    assert stored.value("SELECT max(bytes) FROM weight WHERE low = :low", low=SPAN) == 1


def test_a_topic_kept_by_time_alone_costs_no_weighing(scene: Scene, stored: Stored) -> None:
    qid = scene.topic(seconds=3600)
    scene.fill((qid, BODY))
    scene.drop()
    assert stored.value("SELECT count(*) FROM weight") == 0


def test_a_deleted_topic_keeps_no_partition(scene: Scene) -> None:
    qid = scene.topic()
    scene.fill((qid, "a"))
    assert scene.drop() == 0
    scene.store.registry.delete_topic("orders")
    assert scene.drop() == 1


def test_purged_messages_keep_no_partition(scene: Scene) -> None:
    qid = scene.topic()
    scene.fill((qid, "a"))
    assert scene.drop() == 0
    assert scene.store.queues.purge([qid]) == 1
    assert scene.drop() == 1
    scene.fill((qid, "b"))
    assert scene.drop() == 0
    assert scene.tail(qid) == 1
