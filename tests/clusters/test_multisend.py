"""One message to many brokers: by best effort, or to so many of them for sure; whoever reads all sees it once."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tests.clusters.town import NAMES, ORDERS, Town
from txsaga.clusters.broker_cluster import BrokerCluster
from txsaga.clusters.copies import COPY, Timers
from txsaga.clusters.reader import ClusterConsumer
from txsaga.core.decision import Decision
from txsaga.errors import BadDestination, ConfigError, OutcomeUnknown, StoreUnavailable, TooFewBrokers, TransactionError
from txsaga.messages.producer import Producer

pytestmark = pytest.mark.postgres

BEST, GUARANTEED = "multisend-best-effort", "multisend-guaranteed"


def seen(consumer: ClusterConsumer, wait: float = 0.0) -> list[tuple[str, str]]:
    """Receive and acknowledge what is handed out; return brokers and texts."""
    found = consumer.receive(10, wait=wait)
    for each in found:
        each.message.ack()
    return [(each.broker, each.message.text()) for each in found]


def reading(cluster: BrokerCluster, **timers: float) -> ClusterConsumer:
    return cluster.consumer("readers", ["plain", ORDERS], timers=Timers(**timers))


def reading_without_b1(town: Town, cluster: BrokerCluster) -> ClusterConsumer:
    """Read what was sent once the primary of all of it is away; a copy waits for nothing."""
    town.tick()
    town.down("b1")
    consumer = reading(cluster, tentative=0)
    with pytest.raises(StoreUnavailable, match="b1 became unavailable"):
        consumer.receive()
    consumer.reconnect()
    return consumer


@pytest.mark.req("WM-30")
def test_best_effort_succeeds_when_one_accepts(town: Town) -> None:
    producer = town.plain(BEST).producer("shop")
    assert producer.send("plain", b"to all").nodes == NAMES
    town.down("b1", "b3")
    assert producer.send("plain", b"to one").nodes == ("b2",)
    town.down("b2")
    with pytest.raises(TooFewBrokers):
        producer.send("plain", b"to none")


@pytest.mark.req("WM-30")
def test_best_effort_sends_to_no_more_than_it_may_and_never_in_a_transaction(town: Town) -> None:
    assert town.plain(BEST, most=2).producer("shop").send("plain", b"one").nodes == ("b1", "b2")
    with pytest.raises(ConfigError, match="best effort under XA"):
        town.cluster(BEST)


@pytest.mark.req("WM-31")
def test_guaranteed_reaches_so_many_or_nobody(town: Town) -> None:
    producer = town.cluster(GUARANTEED, needed=2).producer("shop")
    assert set(producer.send(ORDERS, b"to all").nodes) == set(NAMES)
    assert town.all_told() == [["to all"]] * 3
    town.down("b3")
    assert set(producer.send(ORDERS, b"to two").nodes) == {"b1", "b2"}
    town.down("b2")
    with pytest.raises(TooFewBrokers):
        producer.send(ORDERS, b"to one")
    town.up("b2", "b3")
    town.recover()
    assert town.all_told() == [["to all", "to two"], ["to all", "to two"], ["to all"]]


@pytest.mark.req("WM-31", "WM-33")
def test_a_guaranteed_cluster_has_the_xa_of_its_composite(town: Town) -> None:
    inner = {
        "east": {"brokers": ["b1", "b2"], "policy": GUARANTEED, "needed": 2},
        "west": {"brokers": ["b3"], "policy": "sticky"},
    }
    settings = {"clusters": inner, "policy": "sticky", "xa": True}
    producer = town.opened(settings, coordinator=town.coordinator).producer("shop")
    assert producer.send(ORDERS, b"copy").nodes == ("b1", "b2")
    assert town.all_told() == [["copy"], ["copy"], []]


@pytest.mark.req("WM-31")
@pytest.mark.parametrize(
    ("lost", "decision", "told"),
    [
        (("b3",), Decision.COMMIT, [["copy"], ["copy"], []]),
        (("b2", "b3"), Decision.ROLLBACK, [[], [], []]),
    ],
)
def test_brokers_that_are_lost_before_their_votes_are_counted(
    town: Town, lost: tuple[str, ...], decision: Decision, told: list[list[str]]
) -> None:
    producer = town.cluster(GUARANTEED, needed=2).producer("shop")
    try:
        with producer.transaction() as tx:
            tx.send(ORDERS, b"copy")
            town.down(*lost)
    except TooFewBrokers as few:
        assert few.retryable
    assert tx.decision is decision
    town.up(*lost)
    town.recover()
    assert town.all_told() == told


@pytest.mark.req("WM-31")
def test_without_xa_nothing_is_guaranteed(town: Town) -> None:
    with pytest.raises(ConfigError, match="without XA"):
        town.plain(GUARANTEED, needed=2)


@pytest.mark.req("WM-32")
def test_too_few_brokers_may_be_tried_again(town: Town) -> None:
    producer = town.cluster(GUARANTEED, needed=2, names=("b1", "b2")).producer("shop")
    town.down("b2")
    with pytest.raises(TooFewBrokers) as told, producer.transaction() as tx:
        tx.send(ORDERS, b"one")
    assert told.value.retryable
    town.up("b2")
    town.recover()
    assert town.all_told() == [[], [], []]
    with producer.transaction() as tx:
        tx.send(ORDERS, b"two")
    assert town.all_told() == [["two"], ["two"], []]


@pytest.mark.req("WM-32")
def test_a_bad_destination_is_fatal_and_leaves_nothing(town: Town) -> None:
    producer = town.cluster(GUARANTEED, needed=2).producer("shop")
    with pytest.raises(BadDestination) as told, producer.transaction() as tx:
        tx.send(ORDERS, b"one")
        tx.send("no-such-topic", b"two")
    assert not told.value.retryable
    assert tx.decision is Decision.ROLLBACK
    assert town.all_told() == [[], [], []]


@pytest.mark.req("WM-39")
@pytest.mark.parametrize("policy", [BEST, GUARANTEED])
def test_a_message_on_three_brokers_is_seen_once_from_its_primary(town: Town, policy: str) -> None:
    cluster = town.plain(BEST) if policy == BEST else town.cluster(GUARANTEED, needed=2)
    cluster.producer("shop").send("plain" if policy == BEST else ORDERS, b"one")
    town.tick()
    consumer = reading(cluster, tentative=60)
    assert seen(consumer, wait=5) == [("b1", "one")]
    assert seen(consumer) == []
    for name in NAMES:
        assert town.stored[name].rows("SELECT * FROM claim") == []  # the copies are gone, too


@pytest.mark.req("WM-39")
def test_when_the_primary_is_down_for_too_long_another_one_delivers(town: Town) -> None:
    cluster = town.plain(BEST)
    cluster.producer("shop").send("plain", b"one")
    consumer = reading_without_b1(town, cluster)
    assert seen(consumer, wait=5) == [("b2", "one")]
    town.up("b1")
    with pytest.raises(StoreUnavailable, match="b1 is back"):
        consumer.receive()
    consumer.reconnect()
    assert seen(consumer) == []  # the primary's copy comes too late
    assert town.stored["b1"].rows("SELECT * FROM claim") == []


@pytest.mark.req("WM-39")
def test_a_late_copy_is_absorbed_by_the_id_that_all_of_them_share(town: Town) -> None:
    cluster = town.plain(BEST)
    cluster.producer("shop").send("plain", b"one")
    town.tick()
    consumer = reading(cluster, tentative=0, confirmed=0)
    ids, done = set[str | None](), set[str | None]()
    for _ in range(4):
        for each in consumer.receive(10):
            ids.add(each.message.delivered.unique_key)
            assert each.message.headers[COPY] == each.message.delivered.unique_key
            done.add(each.message.delivered.unique_key)
            each.message.ack()
    assert len(ids) == len(done) == 1


@pytest.mark.req("WM-39")
def test_copies_whose_time_is_over_are_handed_out_one_by_one_and_none_is_dropped(town: Town) -> None:
    cluster = town.plain(BEST)
    producer = cluster.producer("shop")
    for text in ("one", "two", "three"):
        producer.send("plain", text.encode())
    consumer = reading_without_b1(town, cluster)
    found: list[str] = []
    for _ in range(8):
        for each in consumer.receive(1, wait=0.5):
            each.message.ack()
            found.append(each.message.text())
    assert sorted(found) == ["one", "three", "two"]
    for name in ("b2", "b3"):
        assert town.stored[name].rows("SELECT * FROM claim") == []


@pytest.mark.req("WM-31")
def test_a_message_that_too_few_took_is_not_kept_by_those_that_did(town: Town) -> None:
    producer = town.cluster(GUARANTEED, needed=2).producer("shop")
    b1 = town.direct["b1"]
    b1.create_topic("here", "transaction")
    with pytest.raises(TransactionError), producer.transaction() as tx, suppress(BadDestination):
        tx.send("here", b"one")
    assert tx.decision is Decision.ROLLBACK
    town.tick("b1")
    assert b1.stream("readers", ["here"], member="anna").poll() is None


@pytest.mark.req("WM-30")
@pytest.mark.parametrize("away", [False, True])
def test_where_answers_were_lost_best_effort_does_not_say_that_nobody_took_it(
    town: Town, monkeypatch: pytest.MonkeyPatch, away: bool
) -> None:
    producer = town.plain(BEST, names=("b1", "b2")).producer("shop")
    producer.send("plain", b"first")
    lost = OutcomeUnknown("it is unknown whether this was written")
    answers = iter([lost, StoreUnavailable("the line is cut") if away else lost])

    def send(self: Producer, message: object) -> None:
        raise next(answers)

    monkeypatch.setattr(Producer, "send", send)
    with pytest.raises(OutcomeUnknown):
        producer.send("plain", b"one")
