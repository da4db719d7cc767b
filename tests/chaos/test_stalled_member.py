"""A member that stalls beyond its time loses what it holds, and is told so when it comes back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import timedelta

import pytest

import txsaga
from tests.chaos.world import World
from txsaga.broker import Broker

pytestmark = [pytest.mark.postgres, pytest.mark.kill]

HOLD = timedelta(seconds=1)
MEMBER = """
import sys, txsaga
from datetime import timedelta
with txsaga.connect(sys.argv[1], roles=False, env={}) as broker:
    consumer = broker.consumer("workers", ["orders"], invisible=timedelta(seconds=1), member="stalled")
    (message,) = consumer.receive(1)
    print("holds", message.text(), flush=True)
    sys.stdin.readline()
    producer = broker.producer("stalling", checker=lambda question: None)
    try:
        if sys.argv[2] == "consume":
            with producer.transaction() as tx:
                tx.consume(message)
        else:
            getattr(message, sys.argv[2])()
        print("done")
    except txsaga.errors.ClaimLost as lost:
        print("lost", message.attempts)
"""


@pytest.mark.req("IBM-61")
@pytest.mark.sampled(2)
@pytest.mark.parametrize("late", ["ack", "nack", "extend", "consume"])
def test_a_stalled_member_loses_its_message_to_another_and_is_told(world: World, late: str) -> None:
    program, pipe = [sys.executable, "-c", MEMBER, world.home, late], subprocess.PIPE
    with txsaga.connect(world.home, roles=False, env={}) as broker:
        broker.create_topic("orders", queues=1)
        broker.producer("shop").send("orders", b"7")
        assert broker.roles()[0].run_once()
        with subprocess.Popen(program, stdin=pipe, stdout=pipe, text=True) as stalled:
            assert_told(broker, stalled)


def letters_and_claims(broker: Broker) -> tuple[int, int]:
    """Count what is dead, and what is in hands."""
    (reading,) = broker.kernel.store.overview.readings()
    return len(broker.dead_letters.list("workers")), reading.held


def assert_told(broker: Broker, stalled: subprocess.Popen[str]) -> None:
    """Take the message that a stalled member holds, and let that one come too late."""
    try:
        assert stalled.stdout is not None
        assert stalled.stdout.readline() == "holds 7\n"
        os.kill(stalled.pid, signal.SIGSTOP)
        with broker.consumer("workers", ["orders"], member="busy") as consumer:
            (again,) = consumer.receive(wait=30)
            assert (again.text(), again.attempts) == ("7", 2)
            os.kill(stalled.pid, signal.SIGCONT)
            said, _ = stalled.communicate("go on\n", timeout=30)
            assert said == "lost 1\n"
            assert letters_and_claims(broker) == (0, 1)
            again.ack()
            assert consumer.receive(wait=2 * HOLD.total_seconds()) == []
    finally:
        stalled.kill()
