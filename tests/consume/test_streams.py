"""Streams on the real store: members share queues, positions move by commits alone, fences hold."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from tests.contracts.samples import PATIENCE, drain, start
from tests.scene.patience import eventually
from tests.scene.probe import Probe
from tests.scene.rules import OpenBroker, batch_of, expire
from txsaga.broker import Broker
from txsaga.consume.queue_reader import Start
from txsaga.consume.stream import Stream
from txsaga.errors import ConfigError, LeaseLost, OffsetOutOfRange, UnknownTopic
from txsaga.messages.producer import Producer

pytestmark = [pytest.mark.postgres, pytest.mark.core]

QUEUES = 4
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def paid(broker: Broker) -> tuple[int, ...]:
    """Give the queues of a topic with three messages in each: 0 to 3 come first, then 4 to 7, then 8 to 11."""
    topic = broker.create_topic("paid", queues=QUEUES)
    send(broker, range(3 * QUEUES))
    return topic.qids


def send(broker: Broker, numbers: range) -> None:
    bank = broker.producer("bank")
    for number in numbers:
        bank.send("paid", b"%d" % number, tag="even" if number % 2 == 0 else "odd")
    drain(broker.kernel.store)


def member(broker: Broker, name: str, ttl: float = 60, group: str = "billing") -> Stream:
    return broker.stream(group, ["paid"], member=name, ttl=timedelta(seconds=ttl))


def numbers(stream: Stream) -> list[int]:
    """Read all that is there now, and commit it."""
    return sorted(int(message.body) for message in stream.messages(wait=0))


def shared(*streams: Stream) -> list[set[int]]:
    """Let members poll until every queue has found its place; return who has which."""

    def settled() -> bool:
        for stream in streams:
            stream.poll()
        held = [len(stream.claims) for stream in streams]
        return sum(held) == QUEUES and max(held) - min(held) <= 1

    eventually(settled, "the members share the queues")
    return [set(stream.claims) for stream in streams]


# Members


def test_members_share_the_queues(open_broker: OpenBroker, broker: Broker, paid: tuple[int, ...]) -> None:
    anna, berta = member(broker, "anna", ttl=2), member(open_broker(), "berta", ttl=2)
    hers, others = shared(anna, berta)
    assert (hers, others) == ({paid[0], paid[2]}, {paid[1], paid[3]})


def test_together_the_members_of_a_group_read_everything_once(
    open_broker: OpenBroker, broker: Broker, paid: tuple[int, ...]
) -> None:
    anna, berta = member(broker, "anna", ttl=2), member(open_broker(), "berta", ttl=2)
    for stream in (anna, berta):
        stream.poll()
    shared(anna, berta)
    for stream in (anna, berta):  # what was polled and not committed comes again
        for qid in stream.claims:
            stream.seek(qid, stream.claims[qid].offset)
    assert sorted(numbers(anna) + numbers(berta)) == list(range(3 * QUEUES))
    assert numbers(anna) + numbers(berta) == []


def test_groups_read_on_their_own(broker: Broker, paid: tuple[int, ...]) -> None:
    assert numbers(member(broker, "anna")) == numbers(member(broker, "anna", group="mail")) == list(range(12))


def test_a_member_that_leaves_hands_over_where_it_stopped(
    open_broker: OpenBroker, broker: Broker, paid: tuple[int, ...]
) -> None:
    anna = member(broker, "anna")
    first = anna.poll()
    assert first is not None
    anna.commit(first)
    anna.close()
    assert numbers(member(open_broker(), "berta")) == [n for n in range(12) if b"%d" % n != first.bodies[0]]


def test_a_silent_member_loses_its_queues_and_its_late_commit_is_fenced(
    open_broker: OpenBroker, broker: Broker, probe: Probe, paid: tuple[int, ...]
) -> None:
    anna, berta = member(broker, "anna"), member(open_broker(), "berta")
    late = anna.poll()
    assert late is not None
    assert berta.poll() is None
    berta.close()
    expire(probe, "anna")
    assert numbers(member(open_broker(), "carla")) == list(range(12))
    with pytest.raises(LeaseLost, match="drop the work"):
        anna.commit(late)
    assert late.qid not in anna.claims
    assert probe.value('SELECT min("off") FROM cursor') == 3


def test_a_fence_holds_though_the_member_is_back(
    open_broker: OpenBroker, broker: Broker, probe: Probe, paid: tuple[int, ...]
) -> None:
    anna = member(broker, "anna")
    late = anna.poll()
    assert late is not None
    expire(probe, "anna")
    carla = member(open_broker(), "carla")
    carla.poll()
    carla.close()
    again = member(open_broker(), "anna")
    again.poll()
    assert late.qid in again.claims
    with pytest.raises(LeaseLost):
        anna.commit(late)
    assert numbers(again) != []


def test_a_member_that_lost_a_queue_reads_on_in_the_others(broker: Broker, probe: Probe, paid: tuple[int, ...]) -> None:
    anna = member(broker, "anna")
    late = batch_of(anna, paid[0])
    probe.run('UPDATE cursor SET "off" = 2, owner = NULL, epoch = epoch + 1 WHERE qid = :qid', qid=paid[0])
    with pytest.raises(LeaseLost):
        anna.commit(late)
    assert batch_of(anna, paid[0]).offset == 2


# Starts


@pytest.mark.parametrize(
    ("begin", "expected"),
    [
        ("earliest", list(range(12))),
        ("latest", []),
        (1, list(range(4, 12))),
        (99, []),
        (NOON, list(range(4, 12))),
        (NOON + timedelta(hours=1), list(range(8, 12))),
        (NOON + timedelta(seconds=1), list(range(8, 12))),
        (NOON + timedelta(days=1), []),
        (NOON - timedelta(days=1), list(range(12))),
    ],
)
def test_a_new_group_starts_where_it_says(
    broker: Broker, probe: Probe, paid: tuple[int, ...], begin: Start, expected: list[int]
) -> None:
    probe.run("UPDATE log SET at = :noon + (base - 1) * interval '1 hour'", noon=NOON)
    stream = broker.stream("billing", ["paid"], start=begin)
    assert numbers(stream) == expected
    send(broker, range(12, 13))
    assert numbers(stream) == [12]


def test_a_group_that_has_a_position_goes_on_there(
    open_broker: OpenBroker, broker: Broker, paid: tuple[int, ...]
) -> None:
    anna = member(broker, "anna")
    assert len(numbers(anna)) == 12
    anna.close()
    send(broker, range(12, 14))
    assert numbers(open_broker().stream("billing", ["paid"], start="earliest")) == [12, 13]


def test_what_can_not_be_read_is_refused_with_advice(broker: Broker, paid: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="no time zone"):
        broker.stream("billing", ["paid"], start=NOON.replace(tzinfo=None))
    with pytest.raises(ConfigError, match=r"write \['paid'\]"):
        broker.stream("billing", "paid")
    with pytest.raises(UnknownTopic):
        broker.stream("billing", ["nothing"])


# Positions


def test_what_is_not_committed_comes_again(open_broker: OpenBroker, broker: Broker, paid: tuple[int, ...]) -> None:
    anna = member(broker, "anna")
    assert len([batch for batch in anna.batches(wait=0)]) == 12
    anna.close()
    assert numbers(member(open_broker(), "berta")) == list(range(12))


def test_a_message_counts_as_read_when_the_next_chunk_is_asked_for(
    open_broker: OpenBroker, broker: Broker, paid: tuple[int, ...]
) -> None:
    anna = member(broker, "anna")
    messages = anna.messages(wait=0)
    taken = [int(next(messages).body) for _ in range(3)]
    anna.close()
    assert numbers(member(open_broker(), "berta")) == [n for n in range(12) if n not in taken[:2]]


def test_a_position_moves_into_a_chunk(broker: Broker, paid: tuple[int, ...]) -> None:
    broker.create_topic("bulk", queues=1)
    broker.producer("bank").send_many("bulk", [b"a", b"b", b"c"])
    drain(broker.kernel.store)
    stream = broker.stream("billing", ["bulk"])
    batch = stream.poll()
    assert batch is not None
    stream.commit(batch, upto=batch.offset + 2)
    stream.close()
    assert [message.body for message in broker.stream("billing", ["bulk"]).messages(wait=0)] == [b"c"]


def test_a_tag_is_filtered_and_the_rest_counts_as_read(
    open_broker: OpenBroker, broker: Broker, paid: tuple[int, ...]
) -> None:
    odd = broker.stream("billing", ["paid"], tag="odd")
    assert numbers(odd) == [1, 3, 5, 7, 9, 11]
    odd.close()
    assert numbers(member(open_broker(), "berta")) == []


def test_seeking_commits_nothing_and_stays_inside(broker: Broker, probe: Probe, paid: tuple[int, ...]) -> None:
    anna = member(broker, "anna")
    anna.poll()
    anna.seek(paid[0], 2)
    assert batch_of(anna, paid[0]).offset == 2
    anna.seek(paid[0], 0)
    assert batch_of(anna, paid[0]).offset == 0
    for outside in (-1, 4):
        with pytest.raises(OffsetOutOfRange, match="the queue holds 0 to 3"):
            anna.seek(paid[0], outside)
    assert probe.value('SELECT max("off") FROM cursor') == 0


# Decisions


def test_a_position_moves_with_the_decision(
    broker: Broker, seller: Producer, probe: Probe, paid: tuple[int, ...]
) -> None:
    anna = member(broker, "anna")
    with seller.transaction() as tx:
        tx.consume(anna, batch_of(anna, paid[0]))
        tx.consume(anna, batch_of(anna, paid[1]))
        tx.send("orders", b"a")
        assert probe.value('SELECT sum("off") FROM cursor') == 0
    assert probe.rows('SELECT "off" FROM cursor ORDER BY qid') == [(1,), (1,), (0,), (0,)]


def test_one_transaction_reads_many_chunks_of_a_queue_and_many_of_them_follow(
    broker: Broker, seller: Producer, probe: Probe, paid: tuple[int, ...]
) -> None:
    anna = member(broker, "anna")
    for chunks in (2, 1):
        with seller.transaction() as tx:
            for _ in range(chunks):
                tx.consume(anna, batch_of(anna, paid[0]))
            tx.send("orders", b"a")
    assert probe.value('SELECT "off" FROM cursor WHERE qid = :qid', qid=paid[0]) == 3


def test_consuming_and_committing_take_turns(
    broker: Broker, seller: Producer, probe: Probe, paid: tuple[int, ...]
) -> None:
    anna = member(broker, "anna")
    anna.commit(batch_of(anna, paid[0]))
    with seller.transaction() as tx:
        tx.consume(anna, batch_of(anna, paid[0]))
    anna.commit(batch_of(anna, paid[0]))
    assert probe.value('SELECT "off" FROM cursor WHERE qid = :qid', qid=paid[0]) == 3


# Waiting


def test_a_waiting_reader_is_woken_by_the_tick(open_broker: OpenBroker, broker: Broker, probe: Probe) -> None:
    broker.create_topic("paid", queues=1)
    log = open_broker().kernel.store.log
    assert log.wait(0)  # begins to listen
    waiting = start(lambda: log.wait(3 * PATIENCE))
    send(broker, range(1))
    assert waiting.result(PATIENCE)


def test_everybody_who_waits_is_woken(open_broker: OpenBroker, broker: Broker) -> None:
    broker.create_topic("paid", queues=1)
    log = open_broker().kernel.store.log
    assert log.wait(0)
    waiting = [start(lambda: log.wait(3 * PATIENCE)) for _ in range(3)]
    while not all(future.done() for future in waiting):
        send(broker, range(1))
    assert [future.result(0) for future in waiting] == [True] * 3


# Forks


@pytest.mark.rule("R18")
def test_a_forked_child_reads_by_a_stream_of_its_own(broker: Broker, store_url: str, paid: tuple[int, ...]) -> None:
    program = [sys.executable, "-m", "tests.consume.forked_reader", store_url]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
