"""The store is killed and started again in the middle of a recovery: what dead producers left is settled."""

from __future__ import annotations

import logging
import time

import pytest

import txsaga
from tests.chaos.invariants import assert_sound, delivered
from tests.chaos.scenarios import CREDITS
from tests.chaos.test_server_killed import broker_on, closing_engine, kill_all
from tests.chaos.transfers import QUICK
from tests.chaos.world import BANK, World, debit
from txsaga import COMMIT, UNKNOWN
from txsaga.broker import Broker
from txsaga.consume.dispatcher import Dispatcher
from txsaga.core.facts import Fact
from txsaga.core.role_loop import Loop
from txsaga.embedded.server import EmbeddedServer
from txsaga.errors import StoreError

pytestmark = [pytest.mark.postgres, pytest.mark.kill]

LEFT = 12
PATIENCE = 60.0


@pytest.fixture
def world(doomed_world: World) -> World:
    """Give a world on a server that may be killed."""
    return doomed_world


def leave(world: World) -> None:
    """Leave transactions with evidence, some whose local work never came, and halves that only a word can settle."""
    with broker_on(world, roles=False) as broker:
        broker.create_topic(CREDITS, "transaction", queues=2)
        producer = broker.producer("bank", checker=lambda _: UNKNOWN)
        for n in range(LEFT):
            tx = producer.transaction(key=f"key {n}" if n % 2 else None).__enter__()
            tx.send(CREDITS, b"%d" % n)
            if n % 3:
                with tx.local(BANK) as connection:
                    debit(connection, str(n))
            else:
                tx._close(broker.kernel.resource(BANK)[0].id)
        asked = broker.producer("teller", checker=lambda _: UNKNOWN)
        for n in range(LEFT):
            asked.prepare_now(CREDITS, b"asked %d" % n)
    world.let_leases_run_out()


@pytest.mark.req("RMQ-08", "RMQ-07")
@pytest.mark.rule("R14")
@pytest.mark.sampled(3)
@pytest.mark.parametrize("moment", ["Sweeping", "Fenced", "Deciding", "Asked", "Heard", "Answering"])
def test_a_store_that_is_restarted_in_the_middle_of_a_recovery_is_recovered(
    doomed: EmbeddedServer, world: World, caplog: pytest.LogCaptureFixture, moment: str
) -> None:
    caplog.set_level(logging.CRITICAL, "txsaga")
    leave(world)
    killed: list[str] = []

    def kill_once(fact: Fact) -> None:
        if fact.name == moment and not killed:
            killed.append(fact.name)
            kill_all(doomed)
            doomed.ensure()

    with (
        closing_engine(world.bank) as bank,
        txsaga.connect(
            world.home, resources={BANK: bank}, roles=False, answering=False, observers=[kill_once], env={}
        ) as broker,
    ):
        broker.producer("teller", checker=lambda _: COMMIT)
        loop = Loop([*broker.own_roles(), *broker.roles(QUICK)])
        loop.start()
        try:
            wait_until_settled(broker)
        finally:
            loop.stop()
        dispatcher = Dispatcher(broker.kernel)
        while dispatcher.run_once():
            pass
    assert killed == [moment]
    worked = [str(n) for n in range(LEFT) if n % 3]
    assert world.debits() == sorted(worked)
    assert delivered(world, CREDITS) == sorted([*worked, *(f"asked {n}" for n in range(LEFT))])
    assert_sound(world, {})


def wait_until_settled(broker: Broker) -> None:
    """Wait until nothing is undecided, and nobody is asked any more."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            store = broker.kernel.store
            if not store.overview.transactions(undecided=True, limit=1) and not store.questions.backlog():
                return
        except StoreError:
            pass  # it is away
        time.sleep(0.1)
    raise AssertionError(f"not settled within {PATIENCE:g} s")
