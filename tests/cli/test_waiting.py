"""What runs for ever waits for a home database that is down when it starts, and says so."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.chaos.proxy import network
from tests.cli.conftest import Cli
from tests.cli.program import TIMEOUT, environment, run, started
from tests.services.databases import fresh_name
from txsaga.broker import Broker
from txsaga.cli import home
from txsaga.errors import RightsMissing, StoreUnavailable

pytestmark = pytest.mark.postgres
INTERRUPTED = """
import signal, sys
from txsaga.cli.engine import stopping

def interrupt(frame, event, argument):
    global left
    left -= 1
    if left == 0:
        signal.raise_signal(signal.SIGTERM)
    return interrupt

left = step = 0
while left <= 0:
    left = step = step + 1
    with stopping() as stopped:
        sys.settrace(interrupt)
        ended = stopped(0.01)
        sys.settrace(None)
    print(ended)
"""
"""A wait that gets a signal at its first step, another one at its second, and so on."""


@pytest.mark.req("IBM-63")
@pytest.mark.parametrize("command", ["engine", "consume", "tail"])
def test_it_begins_when_the_database_comes(shared_url: str, cli: Cli, topic: str, command: str) -> None:
    cli("send", topic, "here")
    words = {
        "engine": ["engine"],
        "consume": ["consume", fresh_name("late"), topic, "--follow", "--count", "1"],
        "tail": ["tail", topic, "--follow", "--count", "1"],
    }[command]
    with network(shared_url) as line:
        line.refusing = True
        with started(*words, env=environment(TXSAGA_URL=line.url)) as program:
            assert program.stdout is not None and program.stderr is not None
            assert "waiting for the home database; the next attempt is in 1 s: " in program.stderr.readline()
            assert "the next attempt is in 2 s: " in program.stderr.readline()
            line.refusing = False
            if command == "engine":
                assert "engine started" in program.stderr.readline()
                program.send_signal(signal.SIGTERM)
            else:
                assert "here" in program.stdout.readline()
            program.communicate(timeout=TIMEOUT)
            assert program.returncode == 0


def test_an_engine_that_waits_stops_when_it_is_told_to(shared_url: str) -> None:
    with network(shared_url) as line:
        line.refusing = True
        with started("engine", env=environment(TXSAGA_URL=line.url)) as engine:
            assert engine.stderr is not None
            assert "waiting for the home database" in engine.stderr.readline()
            engine.send_signal(signal.SIGTERM)
            _, err = engine.communicate(timeout=TIMEOUT)
            assert (engine.returncode, "engine stopped while it was waiting" in err) == (0, True)


def test_a_stop_ends_a_wait_that_it_interrupts_at_any_step() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=TIMEOUT)
    assert (done.returncode, done.stderr) == (0, "")
    first, *rest = answers = done.stdout.split()
    assert (first, rest[-1], answers) == ("True", "False", sorted(answers, reverse=True))


@pytest.mark.parametrize("words", [["engine", "--once"], ["tail", "news"], ["consume", "billing", "news"]])
def test_what_ends_by_itself_does_not_wait(shared_url: str, words: list[str]) -> None:
    with network(shared_url) as line:
        line.refusing = True
        said = run(*words, env=environment(TXSAGA_URL=line.url))
    assert (said.code, said.out) == (6, "")


def test_the_looks_are_ever_further_apart_and_a_mistake_ends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []

    class Away:
        """A store that is down for a while, and then refuses."""

        @staticmethod
        def open(url: str) -> None:
            raise RightsMissing("no") if len(rests) == 7 else StoreUnavailable("nobody is there")

    monkeypatch.setattr("txsaga.store.store.Store", Away)
    with pytest.raises(RightsMissing):
        home.wait_for("postgresql://nowhere", rests.append)
    assert rests == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_a_message_that_nobody_could_read_any_more_comes_to_the_next_one_at_once(
    shared_url: str, cli: Cli, broker: Broker, topic: str
) -> None:
    group = fresh_name("piped")
    cli("send", topic, "unseen")
    with started("consume", group, topic, "--follow", env=environment(TXSAGA_URL=shared_url)) as program:
        assert program.stdout is not None
        program.stdout.close()
        program.stdout = None
        program.communicate(timeout=TIMEOUT)
    with broker.consumer(group, [topic]) as consumer:
        (message,) = consumer.receive()
        assert (message.text(), message.attempts) == ("unseen", 1)
