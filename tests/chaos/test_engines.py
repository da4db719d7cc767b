"""Two engines overlap, members and engines are killed half way: each check is counted and asked once."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping

import pytest

import txsaga
from tests.chaos.engines import ENGINE, MEMBER, started
from tests.chaos.world import World
from txsaga import UNKNOWN
from txsaga.broker import Broker
from txsaga.core.records import Receipt

pytestmark = [pytest.mark.postgres, pytest.mark.kill]

PATIENCE = 30.0


@pytest.fixture
def broker(world: World) -> Iterator[Broker]:
    """Give a broker that only looks."""
    with txsaga.connect(world.home, roles=False, answering=False, env={}) as broker:
        broker.create_topic("orders", "transaction", queues=1)
        yield broker


def left(broker: Broker) -> Receipt:
    """Leave a half, and a tick that covers it."""
    receipt = broker.producer("shop", checker=lambda _: UNKNOWN).prepare_now("orders", b"a chair")
    broker.create_topic("news", queues=1)
    broker.producer("press").send("news", b"")
    return receipt


def counted(broker: Broker, receipt: Receipt) -> int:
    """Return how often a half was asked about."""
    found = broker.kernel.store.overview.checks(receipt.txid)
    return found.asked if found else -1


def answers(broker: Broker) -> Mapping[str, int]:
    """Return how many checks came to what."""
    return {each.group: each.answers for each in broker.kernel.store.overview.backlogs()}["shop"]


def wait_for(happened: Callable[[], object]) -> None:
    """Wait for what other processes do."""
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


@pytest.mark.req("RMQ-30", "RMQ-93", "RMQ-95")
@pytest.mark.conf("INT-04")
@pytest.mark.hole("H12")
def test_an_engine_that_sleeps_past_its_lease_asks_and_counts_nothing_when_it_wakes(
    world: World, broker: Broker
) -> None:
    receipt = left(broker)
    with (
        started(MEMBER, world.home) as member,
        started(ENGINE, world.home, "stalls") as stalled,
        started(ENGINE, world.home) as other,
    ):
        stalled.say()
        assert stalled.heard() == "about to ask"
        stalled.send(signal.SIGSTOP)
        while counted(broker, receipt) == 0:
            other.say()
            assert other.heard().startswith("round")
            time.sleep(0.1)
        assert member.heard() == f"asked {receipt.txid}"
        stalled.send(signal.SIGCONT)
        stalled.say()  # it goes on where it stood, its lead long lost
        assert stalled.heard() == "round 0"
        wait_for(lambda: answers(broker) == {"COMMIT": 1})
    view = broker.kernel.store.overview.transaction(receipt.txid)
    assert view is not None
    assert (view.state, view.from_check) == ("committed", True)


@pytest.mark.req("RMQ-95", "RMQ-09", "RMQ-81")
def test_a_member_that_is_killed_in_the_middle_of_its_answer_leaves_the_question_to_another(
    world: World, broker: Broker
) -> None:
    receipt = left(broker)
    with started(ENGINE, world.home) as engine, started(MEMBER, world.home, "hangs") as member:
        while counted(broker, receipt) < 1:
            engine.say()
            engine.heard()
        assert member.heard() == f"asked {receipt.txid}"
        member.send(signal.SIGKILL)
        world.let_leases_run_out()  # the time to answer, the member's lease, the interval
        with started(MEMBER, world.home) as second:
            while counted(broker, receipt) == 1:
                engine.say()
                engine.heard()
                time.sleep(0.05)
            assert second.heard() == f"asked {receipt.txid}"
            wait_for(lambda: answers(broker) == {"UNKNOWN": 1, "COMMIT": 1})
    view = broker.kernel.store.overview.transaction(receipt.txid)
    assert view is not None and view.state == "committed"


@pytest.mark.req("RMQ-81", "RMQ-95")
def test_an_engine_that_is_killed_just_before_it_asks_has_counted_nothing(world: World, broker: Broker) -> None:
    receipt = left(broker)
    with started(MEMBER, world.home) as member, started(ENGINE, world.home, "stalls") as engine:
        engine.say()
        assert engine.heard() == "about to ask"
        engine.send(signal.SIGKILL)
        assert counted(broker, receipt) == 0
        with started(ENGINE, world.home) as other:
            while counted(broker, receipt) == 0:  # the lease of the dead one runs out by itself
                other.say()
                other.heard()
                time.sleep(0.05)
        assert member.heard() == f"asked {receipt.txid}"
        wait_for(lambda: not broker.kernel.store.overview.transactions(undecided=True, limit=1))


@pytest.mark.timeout(90)
@pytest.mark.rule("R13")
def test_a_process_that_lives_holds_its_work_and_one_that_is_killed_does_not(world: World, broker: Broker) -> None:
    """Real heartbeats: what they hold is due later than now as long as the process lives."""
    program = """
import sys, txsaga
import txsaga.checkback.work_in_progress, txsaga.checkback.heartbeat
txsaga.checkback.work_in_progress.TYPICAL = 0.0
txsaga.checkback.heartbeat.Heartbeat.pace = txsaga.core.role_loop.Pace(0.05, 0.05)
with txsaga.connect(sys.argv[1], roles=False, env={}) as broker:
    producer = broker.producer("shop", checker=lambda _: None)
    with producer.transaction() as tx:
        tx.send("orders", b"a chair")
        tx.prepare()
        print("ready", flush=True)
        print("works on", tx.txid, flush=True)
        sys.stdin.readline()
"""
    store = broker.kernel.store
    with started(program, world.home) as worker:
        txid = int(worker.heard().rpartition(" ")[2])
        wait_for(lambda: store.overview.checks(txid))
        for _ in range(3):
            world.let_leases_run_out()
            wait_for(lambda: txid not in [doubt.txid for doubt in store.doubts.due(10)])
        worker.send(signal.SIGKILL)
        time.sleep(0.2)
        world.let_leases_run_out()
        time.sleep(0.5)
        assert [doubt.txid for doubt in store.doubts.due(10)] == [txid]
