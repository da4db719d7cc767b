"""`txsaga engine`: the roles as a process of their own, which stops when it is told to."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from dataclasses import replace
from datetime import timedelta
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

import pytest

import txsaga
from tests.cli.conftest import Cli
from tests.cli.program import TIMEOUT, environment, started
from tests.contracts.samples import start
from tests.scene.patience import eventually
from tests.scene.stored import Stored
from txsaga.broker import Broker
from txsaga.checkback.profile import PROFILES, CheckProfile
from txsaga.cli.engine import run, stopping
from txsaga.consume.dispatcher import Dispatcher
from txsaga.core.records import Receipt
from txsaga.core.role_loop import Pace


@pytest.mark.req("RMQ-30")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_engine_works_until_it_is_told_to_stop(
    shared_url: str, broker: Broker, topic: str, number: signal.Signals
) -> None:
    words = ("engine", "--profile", "5x", "--max-checks", "3", "--on-exhausted", "rollback")
    told = (
        f"store {broker.identity}, profile 5x: checks every 30 s from 6 s on, at most 3 and for 72 h, "
        "answers within 3 s, then rollback"
    )
    with started(*words, env=environment(TXSAGA_URL=shared_url)) as engine:
        assert engine.stderr is not None
        assert f"INFO engine started: {told}\n" in engine.stderr.readline()
        broker.producer("plain").send(topic, b"x")
        log, qids = broker.kernel.store.log, broker.kernel.store.registry.topic(topic).qids
        while not any(bounds.head for bounds in log.bounds(qids).values()):
            assert engine.poll() is None
            log.wait(1.0)
        engine.send_signal(number)
        out, err = engine.communicate(timeout=TIMEOUT)
    assert (engine.returncode, out) == (0, "")
    assert f"INFO engine stopped: {told}" in err.splitlines()[-1]  # behind what its rounds say of others' doubts


def test_once_runs_each_role_once(cli: Cli, broker: Broker, topic: str) -> None:
    broker.producer("plain").send(topic, b"x")
    said = cli("engine", "--once", "--json")
    assert said.code == 0
    assert all(" INFO " in line for line in said.err.splitlines())  # a round that found others' halves old enough
    settling = {"check-back", "recovery", "budgets"}
    assert said.document.keys() == {"dispatcher", *settling, "partitions", "scheduler"}
    assert said.document["dispatcher"] >= 1
    assert [line.split()[0] for line in cli("engine", "--once").lines] == ["role", *said.document]


class SlowRole:
    """A role whose round ends when a test lets it end."""

    name, pace = "slow", Pace(0.0, 0.0)

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
    engine = start(lambda: run([role], "store", stop.wait))
    assert role.began.wait(TIMEOUT)
    stop.set()
    assert not engine.done()
    role.may_end.set()
    engine.result(TIMEOUT)
    assert role.rounds >= 1
    assert f"txsaga-{role.name}" not in {thread.name for thread in threading.enumerate()}


def test_the_first_signal_asks_and_the_next_one_works_as_usual() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stopping() as stopped:
        assert signal.getsignal(signal.SIGTERM) is not before
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopped(TIMEOUT)
        assert signal.getsignal(signal.SIGTERM) is before
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_stop_that_another_thread_gets_ends_the_wait() -> None:
    """As does one that comes just before the wait: nothing interrupts that either."""

    def get() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    with stopping() as stopped:
        other = threading.Timer(0.1, get)
        other.start()
        assert stopped(TIMEOUT)
        other.join(TIMEOUT)


def test_neither_another_signal_nor_a_child_stops_the_engine() -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with stopping() as stopped:
            child = get_context("fork").Process(target=time.sleep, args=(TIMEOUT,))
            child.start()
            os.kill(os.getpid(), signal.SIGUSR1)
            child.terminate()
            assert not stopped(0.2)
            asyncio.run(quiet())
            os.kill(os.getpid(), signal.SIGTERM)
            assert stopped(TIMEOUT) and stopped(TIMEOUT)
    finally:
        signal.signal(signal.SIGUSR1, before)
    child.kill()
    child.join(TIMEOUT)


async def quiet() -> None:
    """Handle a signal in a loop, as a library may; it takes what wakes the interpreter up."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR2, lambda: None)
    loop.remove_signal_handler(signal.SIGUSR2)


@pytest.mark.req("RMQ-28", "RMQ-26", "RMQ-96")
def test_check_back_has_the_defaults_of_its_profile_and_what_is_said_beside_it() -> None:
    classic = PROFILES["classic"].of_group({})
    assert classic == CheckProfile(interval=timedelta(seconds=60), min_age=timedelta(seconds=6), max_checks=15)
    assert PROFILES["5x"].of_group({}) == replace(classic, interval=timedelta(seconds=30))
    changes = {"interval": timedelta(seconds=1.5), "min_age": timedelta(0), "max_checks": 3}
    assert PROFILES["5x"].of_group(changes) == replace(classic, **changes)  # type: ignore[arg-type]


def given_up(url: str) -> Receipt:
    """Store a half that is due, and whose time is up for an engine with a total limit of a second."""
    with txsaga.connect(url, roles=False, answering=False, env={}) as broker:
        broker.create_topic("orders", "transaction", queues=1)
        receipt = broker.producer("shop", checker=lambda _: None).prepare_now("orders", b"a")
        Stored(url).let_pass(60)
        Dispatcher(broker.kernel).run_once()
        Stored(url).let_pass(60)
    return receipt


@pytest.mark.req("RMQ-67")
@pytest.mark.parametrize(("words", "state"), [((), "parked"), (("--on-exhausted", "rollback"), "rolled_back")])
def test_an_engine_gives_up_what_is_too_old_as_it_is_told(
    bare: Cli, own_url: str, words: tuple[str, ...], state: str
) -> None:
    half = given_up(own_url)
    env = {"TXSAGA_URL": own_url}
    assert bare("engine", "--once", **env).code == 0
    assert bare("tx", "show", str(half.txid), "--json", **env).document["state"] == "prepared"
    Stored(own_url).let_pass(60)
    assert bare("engine", "--once", "--total-limit", "1s", *words, **env).code == 0
    assert bare("tx", "show", str(half.txid), "--json", **env).document["state"] == state


@pytest.mark.req("RMQ-78")
def test_a_handler_is_called_with_what_is_given_up_in_its_group(
    bare: Cli, own_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import txsaga\nasked = []\ndef judge(q):\n    asked.append(q.txid)\n    return txsaga.Decision.ROLLBACK\n"
    (tmp_path / "shop_handlers.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    half = given_up(own_url)
    words = ("engine", "--once", "--total-limit", "1", "--handler")
    assert bare(*words, "bank=shop_handlers:judge", TXSAGA_URL=own_url).code == 0
    assert bare("tx", "pending", "--parked", "--json", TXSAGA_URL=own_url).documents[0]["txid"] == half.txid
    assert bare("tx", "resume", str(half.txid), "--reason", "anew", TXSAGA_URL=own_url).code == 0
    Stored(own_url).let_pass(60)  # it has its whole time again
    assert bare(*words, "shop=shop_handlers:judge", TXSAGA_URL=own_url).code == 0
    assert import_module("shop_handlers").asked == [half.txid]
    assert bare("tx", "show", str(half.txid), "--json", TXSAGA_URL=own_url).document["state"] == "rolled_back"


@pytest.mark.req("RMQ-68")
def test_an_engine_answers_for_producers_that_are_gone(bare: Cli, own_url: str, tmp_path: Path) -> None:
    source = "import txsaga\ndef look_up(question):\n    return txsaga.COMMIT\n"
    (tmp_path / "shop_checks.py").write_text(source)
    half = given_up(own_url)
    words = ("engine", "--min-age", "0", "--check-interval", "0.2", "--checker", "shop=shop_checks:look_up")
    env = environment(TXSAGA_URL=own_url, PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    with started(*words, env=env) as engine:
        shown = partial(bare, "tx", "show", str(half.txid), "--json", TXSAGA_URL=own_url)
        eventually(lambda: shown().document["state"] == "committed", "the engine's checker was asked")
        engine.terminate()
        engine.communicate(timeout=TIMEOUT)
    assert bare("engine", "--once", "--checker", "shop", TXSAGA_URL=own_url).code == 2


@pytest.mark.parametrize(
    ("value", "code", "told"),
    [
        ("judge", 2, "--handler"),
        ("shop=judge", 2, "--handler"),
        ("=a:b", 2, "--handler"),
        ("shop=a:b:c", 2, "--handler"),
        ("shop=no_such_module:judge", 3, "handler 'no_such_module:judge' can't be loaded"),
        ("shop=:judge", 3, "can't be loaded"),
        ("shop=txsaga:no_such_function", 3, "can't be loaded"),
        ("shop=txsaga:__all__", 3, "give a function"),
    ],
)
def test_a_handler_that_is_none_is_refused(bare: Cli, own_url: str, value: str, code: int, told: str) -> None:
    said = bare("engine", "--once", "--handler", value, TXSAGA_URL=own_url)
    assert (said.code, said.out) == (code, "")
    assert told in said.complaint


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
        ("--total-limit", "soon"),
        ("--reply-timeout", "-3"),
        ("--on-exhausted", "commit"),
    ],
)
def test_a_setting_out_of_range_is_refused(bare: Cli, words: tuple[str, str]) -> None:
    said = bare("engine", *words)
    assert said.code == 2
    assert words[0] in said.complaint
