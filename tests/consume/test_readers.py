"""Readers on the real store: lost sessions, threads that share it, leases of the dead, locks in one order."""

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from tests.contracts.samples import LONG, PATIENCE, claimed, drain, new_queues, start
from tests.scene.patience import eventually
from tests.scene.probe import Probe, pid_of
from tests.scene.rules import OpenBroker
from txsaga.broker import Broker
from txsaga.consume.log_store import Log

pytestmark = [pytest.mark.postgres, pytest.mark.core]

END_ALL = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = :name"
LOCK = "SELECT 1 FROM cursor WHERE qid = :qid FOR UPDATE NOWAIT"


@pytest.fixture
def paid(broker: Broker) -> int:
    """Give the queue of a topic with four messages in it."""
    (qid,) = broker.create_topic("paid", queues=1).qids
    for body in (b"1", b"2", b"3", b"4"):
        broker.producer("bank").send("paid", body)
    drain(broker.kernel.store)
    return qid


@pytest.mark.usefixtures("paid")
def test_a_reader_whose_sessions_end_reads_on(broker: Broker, probe: Probe) -> None:
    read = []
    for message in broker.stream("billing", ["paid"]).messages(wait=0):
        read.append(message.text())
        probe.run(END_ALL, name=f"txsaga {probe.namespace}")
    assert read == ["1", "2", "3", "4"]


def test_a_scan_of_doubts_whose_session_ended_asks_again(broker: Broker, probe: Probe) -> None:
    doubts = broker.kernel.store.doubts
    assert doubts.due(10) == []
    for _ in range(2):
        probe.run(END_ALL, name=f"txsaga {probe.namespace}")
        assert doubts.due(10) == []


class Fickle(list[object]):
    """Idle lines that another thread takes between a look and the grab."""

    def __len__(self) -> int:
        """Count one that is gone."""
        return 1


def test_threads_that_read_at_the_same_time_each_have_a_line(broker: Broker, paid: int) -> None:
    log = broker.kernel.store.log
    assert isinstance(log, Log)
    log._readers._free = Fickle()  # type: ignore[assignment]
    assert len(log.fetch(paid, 0, 10)) == 4


def test_a_reader_in_another_thread_ends_when_the_broker_closes(open_broker: OpenBroker, paid: int) -> None:
    leaving = open_broker()
    stream = leaving.stream("billing", ["paid"])
    texts = (message.text() for message in stream)
    assert [next(texts) for _ in range(3)] == ["1", "2", "3"]
    waiting = start(lambda: list(texts))
    eventually(lambda: stream.claims[paid].offset == 4, "everything is read")
    leaving.close()
    assert waiting.result(PATIENCE) == ["4"]


@pytest.mark.usefixtures("paid")
def test_leases_of_the_dead_do_not_pile_up(broker: Broker, probe: Probe) -> None:
    queues = broker.kernel.store.queues
    for number in range(5):
        queues.renew("billing", f"member-{number}", ["paid"], LONG)
    queues.renew("mail", "anna", ["paid"], LONG)
    probe.run("UPDATE lease SET until = clock_timestamp() WHERE holder <> 'member-0'")
    assert queues.renew("billing", "berta", ["paid"], LONG) == {"paid": ["berta", "member-0"]}
    assert probe.rows("SELECT kind, name FROM lease ORDER BY kind, name") == [
        ("member:billing/paid", "berta"),
        ("member:billing/paid", "member-0"),
        ("member:mail/paid", "anna"),
    ]


@pytest.mark.usefixtures("paid")
def test_late_members_do_not_wait_for_each_other(broker: Broker, probe: Probe) -> None:
    queues = broker.kernel.store.queues
    for name in ("anna", "berta"):
        queues.renew("billing", name, ["paid"], LONG)
    probe.run("UPDATE lease SET until = clock_timestamp()")
    with probe.session() as renewing:
        renewing.execute(text("UPDATE lease SET until = clock_timestamp() + interval '1 hour' WHERE name = 'berta'"))
        live = start(lambda: queues.renew("billing", "anna", ["paid"], LONG))
        assert live.result(PATIENCE) == {"paid": ["anna"]}
        renewing.commit()
    assert queues.renew("billing", "anna", ["paid"], LONG) == {"paid": ["anna", "berta"]}


@pytest.mark.rule("R14")
def test_a_member_that_leaves_locks_cursors_in_the_order_of_decisions(broker: Broker, probe: Probe) -> None:
    store = broker.kernel.store
    low, high = new_queues(store, "paid", 2)
    claimed(store, high)  # its row lies first in the table
    claimed(store, low)
    probe.run("ANALYZE cursor")  # a table so small is read in the order of its rows
    with probe.session() as deciding:
        deciding.execute(text(LOCK), {"qid": low})
        leaving = start(lambda: store.queues.leave("billing", "anna", ["paid"]))
        probe.wait_for_block(pid_of(deciding))
        with probe.session() as other:
            other.execute(text(LOCK), {"qid": high})
    leaving.result(PATIENCE)


def test_a_lock_that_is_held_is_noticed(broker: Broker, probe: Probe) -> None:
    (qid,) = new_queues(broker.kernel.store, "paid")
    claimed(broker.kernel.store, qid)
    with probe.session() as one, probe.session() as two:
        one.execute(text(LOCK), {"qid": qid})
        with pytest.raises(OperationalError, match="could not obtain lock"):
            two.execute(text(LOCK), {"qid": qid})
