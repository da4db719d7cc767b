"""`txsaga engine`: the roles as a process of their own, which stops when it is told to."""

from __future__ import annotations

import os
import signal
import threading
from datetime import timedelta

import pytest

from tests.cli.conftest import Cli
from tests.cli.program import TIMEOUT, environment, started
from txsaga.cli.engine import Profile, profile_of, run, stopping
from txsaga.engine.broker import Broker
from txsaga.model.checks import CheckProfile
from txsaga.testing.samples import start


@pytest.mark.req("RMQ-30")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_engine_works_until_it_is_told_to_stop(
    shared_url: str, broker: Broker, topic: str, number: signal.Signals
) -> None:
    words = ("engine", "--profile", "5x", "--max-checks", "3")
    with started(*words, env=environment(TXSAGA_URL=shared_url)) as engine:
        assert engine.stderr is not None
        assert "INFO engine started: store " in engine.stderr.readline()
        broker.producer("plain").send(topic, b"x")
        log, qids = broker.kernel.store.log, broker.kernel.store.registry.topic(topic).qids
        while not any(bounds.head for bounds in log.bounds(qids).values()):
            assert engine.poll() is None
            log.wait(1.0)
        engine.send_signal(number)
        out, err = engine.communicate(timeout=TIMEOUT)
    assert (engine.returncode, out) == (0, "")
    (line,) = err.splitlines()
    assert f"INFO engine stopped: store {broker.identity}" in line


def test_once_runs_each_role_once(cli: Cli, broker: Broker, topic: str) -> None:
    broker.producer("plain").send(topic, b"x")
    said = cli("engine", "--once", "--json")
    assert (said.code, said.err) == (0, "")
    assert said.document.keys() == {"dispatcher", "check-back", "partitions", "scheduler"}
    assert said.document["dispatcher"] >= 1
    assert [line.split()[0] for line in cli("engine", "--once").lines] == ["role", *said.document]


class SlowRole:
    """A role whose round ends when a test lets it end."""

    name, pause, rest = "slow", 0.0, 0.0

    def __init__(self) -> None:
        self.began, self.may_end = threading.Event(), threading.Event()
        self.rounds = 0

    def run_once(self) -> int:
        """Do a round."""
        self.began.set()
        assert self.may_end.wait(TIMEOUT)
        self.rounds += 1
        return 1


@pytest.mark.req("RMQ-30")
def test_a_stop_lets_every_round_come_to_its_end() -> None:
    role, stop = SlowRole(), threading.Event()
    engine = start(lambda: run([role], CheckProfile(), "store", stop))
    assert role.began.wait(TIMEOUT)
    stop.set()
    assert not engine.done()
    role.may_end.set()
    engine.result(TIMEOUT)
    assert role.rounds >= 1
    assert f"txsaga-{role.name}" not in {thread.name for thread in threading.enumerate()}


def test_the_first_signal_asks_and_the_next_one_works_as_usual() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stopping() as stop:
        assert signal.getsignal(signal.SIGTERM) is not before
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(TIMEOUT)
        assert signal.getsignal(signal.SIGTERM) is before
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.req("RMQ-28", "RMQ-26", "RMQ-96")
def test_check_back_has_the_defaults_of_its_profile_and_what_is_said_beside_it() -> None:
    classic = profile_of(Profile.CLASSIC, None, None, None)
    assert classic == CheckProfile(interval=timedelta(seconds=60), min_age=timedelta(seconds=6), max_checks=15)
    assert profile_of(Profile.NEWER, None, None, None).interval == timedelta(seconds=30)
    said = profile_of(Profile.NEWER, 1.5, 0.0, 3)
    assert said == CheckProfile(interval=timedelta(seconds=1.5), min_age=timedelta(0), max_checks=3)


@pytest.mark.parametrize(
    "words",
    [
        ("--profile", "6x"),
        ("--check-interval", "0"),
        ("--check-interval", "1e300"),
        ("--max-checks", "0"),
        ("--min-age", "-1"),
        ("--min-age", "inf"),
        ("--min-age", "nan"),
    ],
)
def test_a_setting_out_of_range_is_refused(bare: Cli, words: tuple[str, str]) -> None:
    said = bare("engine", *words)
    assert said.code == 2
    assert words[0] in said.complaint
