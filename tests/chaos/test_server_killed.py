"""PostgreSQL is killed while everybody works: what was acknowledged stays, nothing comes twice, nobody hangs."""

from __future__ import annotations

import logging
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text

import txsaga
from tests.chaos.invariants import assert_sound, decisions, delivered
from tests.chaos.load import NEWS, PRODUCERS, Load, Tally, reads, works_off
from tests.chaos.scenarios import CREDITS, settle
from tests.chaos.world import BANK, World, database
from txsaga.broker import Broker
from txsaga.core.decision import Decision
from txsaga.embedded.server import EmbeddedServer

pytestmark = [pytest.mark.postgres, pytest.mark.kill]

KILLS = 3
END_SESSIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
 WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 3"""


@pytest.fixture
def world(doomed_world: World) -> World:
    """Give a world on a server that may be killed."""
    return doomed_world


@pytest.fixture(autouse=True)
def silence(caplog: pytest.LogCaptureFixture) -> None:
    """Let roles complain to nobody that the server is away."""
    caplog.set_level(logging.CRITICAL, "txsaga")


@contextmanager
def broker_on(world: World, *, roles: bool) -> Iterator[Broker]:
    """Open a broker and its bank."""
    with (
        closing_engine(world.bank) as bank,
        txsaga.connect(world.home, resources={BANK: bank}, roles=roles, env={}) as broker,
    ):
        yield broker


@contextmanager
def closing_engine(url: str) -> Iterator[Engine]:
    """Open a database as a user does, with a pool."""
    engine = create_engine(url)
    yield engine
    engine.dispose()


@pytest.fixture
def broker(world: World) -> Iterator[Broker]:
    """Give a broker whose roles are run by hand."""
    with broker_on(world, roles=False) as broker:
        yield broker


def kill_all(server: EmbeddedServer) -> None:
    """Kill -9 every process of a server: first the one that would start others."""
    postmaster = server.status().pid
    assert postmaster is not None
    children = children_of(postmaster)
    for pid in (postmaster, *children):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def children_of(parent: int) -> list[int]:
    """List the children of a process."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(folder.name))
    return found


@pytest.mark.req("RMQ-53", "RMQ-03")
def test_a_half_is_there_after_a_kill_right_behind_its_acknowledgement(
    doomed: EmbeddedServer, world: World, broker: Broker
) -> None:
    broker.create_topic(CREDITS, "transaction", queues=1)
    producer = broker.producer("bank", checker=lambda _: None)
    for n in range(KILLS):
        receipt = producer.prepare_now(CREDITS, b"%d" % n)
        kill_all(doomed)
        doomed.ensure()
        assert [half.prepared for half in broker.kernel.store.halves.views(receipt.txid)] == [True]
        assert producer.commit(receipt).won
    settle(broker, world)
    assert delivered(world, CREDITS) == ["0", "1", "2"]


@pytest.mark.req("RMQ-53", "RMQ-21", "RMQ-96")
@pytest.mark.hole("H3")
def test_a_decision_is_there_after_a_kill_right_behind_its_acknowledgement(
    doomed: EmbeddedServer, world: World, broker: Broker
) -> None:
    broker.create_topic(CREDITS, "transaction", queues=1)
    broker.create_topic(NEWS, queues=1)
    bank, shop = broker.producer("bank", checker=lambda _: None), broker.producer("shop")
    for n, decision in enumerate((Decision.COMMIT, Decision.ROLLBACK)):
        receipt = bank.prepare_now(CREDITS, b"%d" % n)
        bank.decide(receipt, decision).result(30)
        plain = shop.send(NEWS, b"%d" % n)
        kill_all(doomed)
        doomed.ensure()
        assert decisions(world)[receipt.txid] == decision
        assert decisions(world)[plain.txid] == Decision.COMMIT
    settle(broker, world)
    assert delivered(world, CREDITS) == ["0"]
    assert delivered(world, NEWS) == ["0", "1"]


@pytest.mark.req("RMQ-53", "RMQ-21", "RMQ-07", "IBM-61", "IBM-63")
@pytest.mark.rule("R14")
def test_under_load_nothing_acknowledged_is_lost_or_doubled(doomed: EmbeddedServer, world: World) -> None:
    with broker_on(world, roles=True) as broker:
        load = Load(broker)
        with load.running(*PRODUCERS, reads, works_off, works_off) as tally:
            tally.wait_for_more()
            for _ in range(KILLS):
                kill_all(doomed)
                doomed.ensure()
                tally.wait_for_more()  # everybody found back without help
    assert_all_were_told_the_truth(load.tally, world)


@pytest.mark.req("RMQ-07")
@pytest.mark.rule("R14")
def test_lost_sessions_lose_and_double_nothing(world: World) -> None:
    with broker_on(world, roles=True) as broker, database(world.home_database) as engine:
        load = Load(broker)
        with load.running(*PRODUCERS, reads, works_off, works_off) as tally:
            for _ in range(20):
                tally.wait_for_more(10)
                tally.wait_for_each("plain", "half")  # none of theirs is hit twice
                with engine.connect() as connection:
                    connection.execute(text(END_SESSIONS))
    # The hot path reconnects and looks up what became of its batch: its callers hear nothing of it.
    assert not {body: why for body, why in tally.refused.items() if body.startswith(("plain", "half"))}
    assert_all_were_told_the_truth(tally, world)


def look_now(broker: Broker, world: World) -> None:
    """Let both looks of the sweep come at once, and every check that was put off when a session was lost."""
    broker.kernel.store.log.tick(1000)
    with database(world.home_database) as engine, engine.begin() as connection:
        connection.execute(text(f"UPDATE {world.name}.tick SET at = at - interval '1 hour'"))
        connection.execute(text(f"UPDATE {world.name}.doubt SET check_at = check_at - interval '1 hour'"))


def assert_all_were_told_the_truth(tally: Tally, world: World) -> None:
    """Settle what is undecided in a fresh broker, then compare what was told with what is there."""
    with broker_on(world, roles=False) as broker:
        after = Load(broker)
        after.bank()
        look_now(broker, world)
        settle(broker, world)
        tally.seen.update(message.text() for message in after.stream().messages(wait=0))
        for message in after.consumer().messages(wait=3):  # what members held when they stopped runs out meanwhile
            with message:
                tally.worked.add(message.text())
    assert_sound(world, tally.decided)
    there = Counter(delivered(world, CREDITS) + delivered(world, NEWS))
    assert [body for body, times in there.items() if times > 1] == []
    assert set(tally.acknowledged) - set(there) == set()
    assert set(there) - tally.seen == set()
    assert {body for body in there if body.startswith("plain")} - tally.worked == set()
    assert world.debits() == sorted(body for body in there if body.startswith(("transfer", "keyed")))
    print(f"acknowledged {len(tally.acknowledged)}, refused {len(tally.refused)}, there {len(there)}")
