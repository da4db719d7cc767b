"""R13: nothing that is needed is swept past or dropped, and room is made without stalling producers.

Without it: a number taken long before its commit is never in doubt; `CREATE … PARTITION OF` behind one long
reader stalls all producers; a drop takes what nobody settled or read.
"""

from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import Engine, text

from tests.contracts.samples import PATIENCE, drain, park, start
from tests.scene.gate import gate
from tests.scene.patience import eventually
from tests.scene.probe import Probe, pid_of
from tests.scene.rules import AT_ONCE, OpenBroker, check_back, read, write_entry
from txsaga.broker import Broker
from txsaga.checkback.doubts_store import SECOND_LOOK
from txsaga.checkback.round import CheckBack
from txsaga.core.decision import LocalState
from txsaga.core.records import Receipt
from txsaga.errors import OffsetOutOfRange, StoreUnavailable
from txsaga.messages.producer import Producer
from txsaga.store import partitions
from txsaga.wiring.connecting import open_store

pytestmark = [pytest.mark.rule("R13"), pytest.mark.postgres]

SPAN = 10
PARTITIONS = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'half'::regclass ORDER BY 1"


@pytest.fixture
def store_url(home_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the URL of a fresh store whose partitions hold ten numbers."""
    monkeypatch.setattr(partitions, "SPAN", SPAN)
    open_store(home_url).close()
    return home_url


@pytest.fixture
def seller(broker: Broker) -> Producer:
    """Give a producer on a topic that keeps what was read no longer."""
    broker.create_topic("short", "transaction", queues=1, retention=timedelta(0))
    return broker.producer("shop", checker=lambda question: LocalState.UNKNOWN)


def sent(seller: Producer, count: int, topic: str = "short") -> list[Receipt]:
    """Commit messages; the first numbers of a fresh store lie in the first partition."""
    receipts = [seller.prepare_now(topic, b"%d" % turn) for turn in range(count)]
    for receipt in receipts:
        seller.commit(receipt)
    return receipts


def read_all(broker: Broker, group: str = "billing") -> None:
    drain(broker.kernel.store)
    stream = broker.stream(group, ["short"])
    for _ in stream.messages(wait=0):
        pass
    stream.close()


def take_numbers(probe: Probe, up_to: int) -> None:
    """Let the numbers of a partition be past, without a half in them."""
    probe.run(f"SELECT setval('tx_seq', {up_to})")


# Adding


def test_a_partition_is_added_behind_a_long_reader_and_nobody_waits(
    broker: Broker, seller: Producer, probe: Probe
) -> None:
    with probe.session() as reader:
        reader.execute(text("SELECT count(*) FROM half, op"))
        adding = start(lambda: broker.kernel.store.log.extend_partitions(3 * SPAN))
        eventually(lambda: adding.done() or probe.blocked_by(pid_of(reader)), "the end of adding")
        seller.prepare_now("short", b"a")
        assert adding.result(PATIENCE) == 4
    assert len(probe.rows(PARTITIONS)) == 4


def test_while_adding_waits_producers_do_not(broker: Broker, seller: Producer, probe: Probe) -> None:
    with probe.session() as vacuum:
        vacuum.execute(text("LOCK TABLE ONLY half IN SHARE UPDATE EXCLUSIVE MODE"))
        pid = pid_of(vacuum)
        adding = start(lambda: broker.kernel.store.log.extend_partitions(3 * SPAN))
        probe.wait_for_block(pid)
        seller.commit(seller.prepare_now("short", b"a"))
        with pytest.raises(StoreUnavailable):
            adding.result(PATIENCE)
        assert read(broker, "short") == [b"a"]
    assert broker.kernel.store.log.extend_partitions(3 * SPAN) == 4


def test_rivals_add_each_partition_once(open_broker: OpenBroker, broker: Broker, probe: Probe) -> None:
    with probe.session() as holder:
        holder.execute(text("LOCK TABLE ONLY half IN SHARE UPDATE EXCLUSIVE MODE"))
        rivals = [open_broker().kernel.store.log for _ in range(3)]
        adding = [start(lambda log=log: log.extend_partitions(3 * SPAN)) for log in rivals]  # type: ignore[misc]
        probe.wait_for_block(pid_of(holder))
        holder.rollback()
        assert sorted(rival.result(PATIENCE) for rival in adding) == [0, 0, 4]
    assert len(probe.rows(PARTITIONS)) == 4


# Dropping


def test_what_is_settled_given_out_and_read_is_dropped(broker: Broker, seller: Producer, probe: Probe) -> None:
    sent(seller, 3)
    seller.roll_back(seller.prepare_now("short", b"rolled back"))
    read_all(broker)
    take_numbers(probe, SPAN)
    assert broker.kernel.store.log.drop_partitions() == 1
    assert probe.rows("SELECT (SELECT count(*) FROM half), (SELECT count(*) FROM op), (SELECT count(*) FROM log)") == [
        (0, 0, 0)
    ]
    (qid,) = broker.kernel.store.registry.topic("short").qids
    assert probe.rows("SELECT tail, head FROM queue WHERE qid = :qid", qid=qid) == [(3, 3)]
    sent(seller, 1)
    assert read(broker, "short")[-1:] == [b"0"]


Keep = Callable[[Broker, Producer, Probe], object]


def left_undecided(broker: Broker, seller: Producer, probe: Probe) -> None:
    seller.prepare_now("short", b"undecided")


def parked(broker: Broker, seller: Producer, probe: Probe) -> None:
    receipt = seller.prepare_now("short", b"parked")
    broker.kernel.store.doubts.sweep(timedelta(0))
    probe.run("INSERT INTO doubt (txid, pgroup) VALUES (:txid, 1) ON CONFLICT DO NOTHING", txid=receipt.txid)
    park(broker.kernel.store, receipt.txid, "out of checks")


def left_open(broker: Broker, seller: Producer, probe: Probe) -> None:
    seller.transaction(key="order-1").__enter__().send("short", b"open")


def closed(broker: Broker, seller: Producer, probe: Probe) -> None:
    tx = seller.transaction(key="order-1").__enter__()
    tx.send("short", b"closed")
    tx.prepare()


def unread(broker: Broker, seller: Producer, probe: Probe) -> None:
    sent(seller, 1)
    drain(broker.kernel.store)


def unread_by_one_group(broker: Broker, seller: Producer, probe: Probe) -> None:
    broker.stream("mail", ["short"])
    sent(seller, 1)
    read_all(broker)


def kept_for_ever(broker: Broker, seller: Producer, probe: Probe) -> None:
    sent(seller, 1, "orders")
    drain(broker.kernel.store)
    broker.stream("mail", ["orders"], start="latest")


def kept_for_a_day(broker: Broker, seller: Producer, probe: Probe) -> None:
    broker.create_topic("day", "transaction", queues=1, retention=timedelta(days=1))
    sent(seller, 1, "day")
    drain(broker.kernel.store)
    broker.stream("mail", ["day"], start="latest")


KEEP = [
    left_undecided,
    parked,
    left_open,
    closed,
    unread,
    unread_by_one_group,
    kept_for_ever,
    kept_for_a_day,
]


@pytest.mark.parametrize("keep", KEEP)
def test_what_is_needed_is_never_dropped(broker: Broker, seller: Producer, probe: Probe, keep: Keep) -> None:
    sent(seller, 1)
    read_all(broker)
    keep(broker, seller, probe)
    take_numbers(probe, 2 * SPAN)
    before = probe.rows("SELECT (SELECT count(*) FROM half), (SELECT count(*) FROM log)")
    assert broker.kernel.store.log.drop_partitions() == 0
    assert probe.rows("SELECT (SELECT count(*) FROM half), (SELECT count(*) FROM log)") == before


def test_what_was_not_given_out_yet_is_never_dropped(broker: Broker, seller: Producer, probe: Probe) -> None:
    sent(seller, 1)
    take_numbers(probe, 2 * SPAN)
    assert broker.kernel.store.log.drop_partitions() == 0
    assert read(broker, "short") == [b"0"]


def test_a_partition_whose_numbers_are_not_all_taken_is_never_dropped(
    broker: Broker, seller: Producer, probe: Probe
) -> None:
    sent(seller, 3)
    read_all(broker)
    assert broker.kernel.store.log.drop_partitions() == 0


def test_a_half_that_comes_while_a_drop_waits_is_kept(broker: Broker, seller: Producer, probe: Probe) -> None:
    receipts = sent(seller, 2)
    read_all(broker)
    with probe.session() as stopped:
        group = receipts[0].group
        stopped.execute(text(f"INSERT INTO half VALUES (9, now(), 0, {group}, 1, 0, 0, 0, 1, NULL, NULL, false, '')"))
        pid = pid_of(stopped)
        take_numbers(probe, SPAN)
        dropping = start(broker.kernel.store.log.drop_partitions)
        eventually(lambda: dropping.done() or probe.blocked_by(pid), "the drop waits for the late half")
        stopped.commit()
    assert dropping.result(PATIENCE) == 0
    assert probe.value("SELECT count(*) FROM half WHERE txid = 9") == 1


def test_a_drop_gives_way_to_a_long_reader(broker: Broker, seller: Producer, probe: Probe) -> None:
    sent(seller, 2)
    read_all(broker)
    take_numbers(probe, SPAN)
    with probe.session() as reader:
        reader.execute(text("SELECT count(*) FROM half"))
        assert broker.kernel.store.log.drop_partitions() == 0
    assert broker.kernel.store.log.drop_partitions() == 1


def test_rivals_drop_a_partition_once(open_broker: OpenBroker, broker: Broker, seller: Producer, probe: Probe) -> None:
    sent(seller, 2)
    read_all(broker)
    take_numbers(probe, SPAN)
    with gate(probe, "UPDATE", "queue") as shut:
        dropping = [start(open_broker().kernel.store.log.drop_partitions) for _ in range(2)]
        shut.wait()
        shut.open()
        assert sorted(rival.result(PATIENCE) for rival in dropping) == [0, 1]


# Reading below the tail


def test_reading_below_the_tail_is_an_error_and_never_a_leap(broker: Broker, seller: Producer, probe: Probe) -> None:
    sent(seller, 3)
    read_all(broker)
    take_numbers(probe, SPAN)
    assert broker.kernel.store.log.drop_partitions() == 1
    sent(seller, 1)
    drain(broker.kernel.store)
    (qid,) = broker.kernel.store.registry.topic("short").qids
    broker.kernel.store.queues.create_cursors("late", {qid: 1})
    late = broker.stream("late", ["short"])
    with pytest.raises(OffsetOutOfRange) as told:
        late.poll()
    assert (told.value.offset, told.value.tail, told.value.head) == (1, 3, 4)
    with pytest.raises(OffsetOutOfRange):
        late.poll()
    with pytest.raises(OffsetOutOfRange):
        late.seek(qid, 2)
    late.seek(qid, 3)
    assert [message.body for message in late.messages(wait=0)] == [b"0"]


def test_reading_below_the_tail_of_an_empty_queue_is_an_error(broker: Broker, seller: Producer, probe: Probe) -> None:
    sent(seller, 3)
    read_all(broker)
    take_numbers(probe, SPAN)
    assert broker.kernel.store.log.drop_partitions() == 1
    (qid,) = broker.kernel.store.registry.topic("short").qids
    broker.kernel.store.queues.create_cursors("late", {qid: 1})
    with pytest.raises(OffsetOutOfRange):
        broker.stream("late", ["short"]).poll()


def test_a_group_that_works_off_below_the_tail_goes_on_and_says_what_is_gone(
    broker: Broker, seller: Producer, probe: Probe, caplog: pytest.LogCaptureFixture
) -> None:
    sent(seller, 3)
    read_all(broker)
    take_numbers(probe, SPAN)
    assert broker.kernel.store.log.drop_partitions() == 1
    sent(seller, 1)
    drain(broker.kernel.store)
    (qid,) = broker.kernel.store.registry.topic("short").qids
    broker.kernel.store.queues.create_cursors("late", {qid: 1})
    with broker.consumer("late", ["short"]) as late:
        (message,) = late.receive()
        assert message.body == b"0"
        message.ack()
    assert "retention deleted 2 messages of group late" in caplog.text
    assert probe.value("SELECT count(*) FROM claim") == 0


# Sweeping


def test_the_second_look_finds_a_half_whose_number_is_older_than_its_commit(
    broker: Broker, seller: Producer, probe: Probe
) -> None:
    group = seller.group.id
    with probe.session() as stopped:
        stopped.execute(
            text(
                "INSERT INTO half (txid, pgroup, qid, chunk, n, body)"
                f" VALUES (nextval('tx_seq'), {group}, 1, 0, 1, '') RETURNING txid"
            )
        )
        check_back(broker)
        stopped.commit()
    check_back(broker)
    assert probe.rows("SELECT txid FROM doubt WHERE NOT keyed") == []
    probe.run("UPDATE tick SET at = at - :past", past=SECOND_LOOK)
    CheckBack(broker.kernel, AT_ONCE).run_once()
    assert len(probe.rows("SELECT txid FROM doubt")) == 1


def test_a_keyed_transaction_is_swept_by_its_row_however_old_its_number_is(
    broker: Broker, seller: Producer, probe: Probe, books: Engine
) -> None:
    tx = seller.transaction(key="order-1").__enter__()
    tx.send("orders", b"a")
    check_back(broker)
    probe.run("UPDATE tick SET at = at - :past", past=SECOND_LOOK)
    check_back(broker)
    with tx.local("books") as connection:
        write_entry(connection)
    assert check_back(broker) == 1
    assert read(broker) == [b"a"]
