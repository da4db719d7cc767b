"""A signal that raises in the main thread, wherever it is, leaves the turn to the others."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.scene.patience import eventually
from txsaga.core.batcher import Batcher

SIGNALS = 6_000


class Interrupt(Exception):
    """What the handler raises."""


class Interrupted:
    """Raises in the main thread while that is inside a call."""

    def __init__(self) -> None:
        self.inside, self.raised = False, 0

    def __call__(self, number: int, frame: object) -> None:
        if self.inside:
            self.inside = False
            self.raised += 1
            raise Interrupt


SENDER = """
import os, sys, time
for at in range(int(sys.argv[2])):
    time.sleep(at % 7 * 1e-5)
    os.kill(int(sys.argv[1]), int(sys.argv[3]))
"""
"""Sends signals at odd moments. It is a process of its own: a thread would hold the interpreter as it sends."""


@contextmanager
def sending() -> Iterator[subprocess.Popen[bytes]]:
    """Send signals to this process during the block."""
    words = [sys.executable, "-c", SENDER, str(os.getpid()), str(SIGNALS), str(int(signal.SIGUSR1))]
    with subprocess.Popen(words) as sender:
        try:
            yield sender
        finally:
            sender.kill()


@pytest.fixture
def interrupted() -> Iterator[Interrupted]:
    """Give a handler of signals, for as long as the test runs."""
    handler = Interrupted()
    before, interval = signal.signal(signal.SIGUSR1, handler), sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # else the sender waits for the caller
    gc.disable()  # what is raised in somebody's callback of a collection reaches no caller
    yield handler
    gc.enable()
    sys.setswitchinterval(interval)
    signal.signal(signal.SIGUSR1, before)


def test_a_caller_that_is_interrupted_as_it_wakes_the_worker_leaves_it_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batcher = Batcher[int, int]("test", lambda items: [item * 2 for item in items])

    def struck() -> None:
        monkeypatch.undo()
        raise Interrupt

    monkeypatch.setattr(batcher, "_signal", struck)
    with pytest.raises(Interrupt):
        batcher.submit(1)
    assert batcher.submit(4).result(10) == 8
    batcher.close()


def test_a_caller_that_is_interrupted_as_it_starts_the_worker_leaves_one_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batcher = Batcher[int, int]("struck", lambda items: [item * 2 for item in items])
    start = threading.Thread.start

    def struck(thread: threading.Thread) -> None:
        monkeypatch.undo()
        start(thread)
        raise Interrupt

    monkeypatch.setattr(threading.Thread, "start", struck)
    with pytest.raises(Interrupt):
        batcher.submit(1)
    assert [batcher.submit(item).result(10) for item in (2, 3)] == [4, 6]
    eventually(lambda: [each.name for each in threading.enumerate()].count("txsaga-struck") == 1, "one worker")
    closing = threading.Thread(target=batcher.close, daemon=True)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()


@pytest.mark.parametrize("way", ["call", "submit"])
def test_a_caller_that_is_interrupted_anywhere_leaves_the_turn_to_others(interrupted: Interrupted, way: str) -> None:
    batcher = Batcher[int, int]("test", lambda items: [item * 2 for item in items])
    with sending() as sender:
        while sender.poll() is None:
            try:
                interrupted.inside = True
                if way == "call":
                    batcher.call(1)
                else:
                    batcher.submit(1).result()
                interrupted.inside = False
            except Interrupt:
                pass
    assert interrupted.raised > 100
    answered = list[int]()
    for ask in (batcher.call, lambda item: batcher.submit(item).result()):
        other = threading.Thread(target=lambda ask=ask: answered.append(ask(4)), daemon=True)
        other.start()
        other.join(10)
    assert answered == [8, 8]
    batcher.close()
