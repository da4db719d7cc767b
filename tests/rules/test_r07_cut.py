"""R7: a cut is a tick, and reads heads and home rows in that same snapshot.

Without it: rows move with the decision, the log with the next tick; a snapshot between them shows new rows and
old topics.
"""

import threading
from collections.abc import Iterator
from functools import partial

import pytest
from sqlalchemy import text

from tests.contracts.samples import PATIENCE, drain, start
from tests.scene.gate import gate
from tests.scene.patience import eventually
from tests.scene.probe import Probe
from tests.scene.rules import OpenBroker
from txsaga.broker import Broker
from txsaga.lake.cut import Cut
from txsaga.messages.producer import Producer

pytestmark = [pytest.mark.rule("R7"), pytest.mark.postgres, pytest.mark.core]


@pytest.fixture
def bank(broker: Broker, probe: Probe) -> Producer:
    """Give a producer; its decisions move a row of the home database and send a message."""
    probe.run("CREATE TABLE account (id int PRIMARY KEY)")
    broker.create_topic("paid", queues=2)
    return broker.producer("bank")


def pay(probe: Probe, bank: Producer, id: int, *, commit: bool = True) -> None:
    with probe.session() as connection:
        connection.execute(text("INSERT INTO account VALUES (:id)"), {"id": id})
        bank.join(connection).send("paid", b"%d" % id)
        if commit:
            connection.commit()


def seen(cut: Cut, probe: Probe) -> tuple[int, int]:
    """Return how many rows and how many messages a cut shows."""
    assert cut.home is not None
    rows = cut.home.execute(text(f"SELECT count(*) FROM {probe.namespace}.account")).scalar_one()
    return rows, sum(cut.heads["paid"])


def test_rows_and_log_move_apart_and_a_cut_shows_both(broker: Broker, probe: Probe, bank: Producer) -> None:
    pay(probe, bank, 1)
    torn = probe.rows("SELECT (SELECT count(*) FROM account), (SELECT sum(head) FROM queue)")
    assert torn == [(1, 0)]
    with broker.cut() as cut:
        assert seen(cut, probe) == (1, 1)


def test_an_open_cut_stays_at_its_moment_and_locks_nothing(broker: Broker, probe: Probe, bank: Producer) -> None:
    pay(probe, bank, 1)
    with broker.cut() as cut:
        pay(probe, bank, 2)
        drain(broker.kernel.store)
        with broker.cut() as later:
            assert seen(later, probe) == (2, 2)
        assert seen(cut, probe) == (1, 1)


def test_every_entry_below_a_head_can_be_read(broker: Broker, probe: Probe, bank: Producer) -> None:
    for id in range(4):
        pay(probe, bank, id)
    store = broker.kernel.store
    with broker.cut() as cut:
        assert seen(cut, probe) == (4, 4)
        for qid, head in zip(store.registry.topic("paid").qids, cut.heads["paid"], strict=True):
            assert sum(entry.count for entry in store.log.fetch(qid, 0, 100)) == head


@pytest.fixture
def payers(probe: Probe, bank: Producer) -> Iterator[threading.Event]:
    """Pay from two threads, some rolled back, until the event is set."""
    stop = threading.Event()

    def pay_on(first: int) -> None:
        id = first
        while not stop.is_set():
            pay(probe, bank, id, commit=id % 5 != 0)
            id += 2

    paying = [start(partial(pay_on, first)) for first in (0, 1)]
    yield stop
    stop.set()
    for thread in paying:
        thread.result(PATIENCE)


def test_a_reader_in_a_loop_never_sees_rows_without_messages_nor_the_reverse(
    broker: Broker, open_broker: OpenBroker, probe: Probe, payers: threading.Event
) -> None:
    rival = start(lambda: _tick_until(open_broker(), payers))
    cuts: list[tuple[int, int]] = []
    while len({rows for rows, _ in cuts}) < 30:
        with broker.cut() as cut:
            cuts.append(seen(cut, probe))
    payers.set()
    rival.result(PATIENCE)
    assert [cut for cut in cuts if cut[0] != cut[1]] == []


def test_the_same_reader_without_the_tick_sees_them_torn(
    broker: Broker, open_broker: OpenBroker, probe: Probe, payers: threading.Event
) -> None:
    rival = start(lambda: _tick_until(open_broker(), payers))

    def torn() -> bool:
        sql = "SELECT (SELECT count(*) FROM account), (SELECT sum(head) FROM queue)"
        ((rows, messages),) = probe.rows(sql)
        return bool(rows > messages)

    eventually(torn, "a snapshot between a decision and its tick")
    payers.set()
    rival.result(PATIENCE)


def test_a_cut_whose_tick_a_rival_wrote_first_is_tried_again(
    broker: Broker, open_broker: OpenBroker, probe: Probe, bank: Producer
) -> None:
    pay(probe, bank, 1)
    rival = open_broker().kernel.store
    with gate(probe, "INSERT", "tick") as shut:
        ticking = start(lambda: rival.log.tick(1000))
        shut.wait()
        cutting = start(lambda: _one_cut(broker, probe))
        shut.open()
        ticked = ticking.result(PATIENCE)
    assert ticked is not None
    assert ticked.chunks == 1
    assert cutting.result(PATIENCE) == (1, 1)


def _one_cut(broker: Broker, probe: Probe) -> tuple[int, int]:
    with broker.cut() as cut:
        return seen(cut, probe)


def _tick_until(broker: Broker, stop: threading.Event) -> None:
    while not stop.is_set():
        broker.kernel.store.log.tick(1000)


def test_a_cut_whose_session_was_ended_is_left_in_peace(broker: Broker, probe: Probe, bank: Producer) -> None:
    pay(probe, bank, 1)
    with broker.cut() as cut:
        assert cut.home is not None
        pid = cut.home.execute(text("SELECT pg_backend_pid()")).scalar_one()
        probe.run("SELECT pg_terminate_backend(:pid, 5000)", pid=pid)
        assert sum(cut.heads["paid"]) == 1
    with broker.cut() as cut:
        assert seen(cut, probe) == (1, 1)
