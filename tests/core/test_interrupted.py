"""A signal that raises in the main thread, wherever it is, leaves the turn to the others."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time
from collections.abc import Iterator

import pytest

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

    def send(self, main: int) -> None:
        """Send signals at odd moments, so many."""
        for at in range(SIGNALS):
            time.sleep(at % 7 * 1e-5)
            signal.pthread_kill(main, signal.SIGUSR1)


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
    assert len([thread for thread in threading.enumerate() if thread.name == "txsaga-struck"]) == 1
    closing = threading.Thread(target=batcher.close, daemon=True)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()


def test_a_caller_that_is_interrupted_anywhere_leaves_the_turn_to_others(interrupted: Interrupted) -> None:
    batcher = Batcher[int, int]("test", lambda items: [item * 2 for item in items])
    sender = threading.Thread(target=interrupted.send, args=(threading.get_ident(),), daemon=True)
    sender.start()
    while sender.is_alive():
        try:
            interrupted.inside = True
            batcher.call(1)
            interrupted.inside = False
        except Interrupt:
            pass
    answered = list[int]()
    other = threading.Thread(target=lambda: answered.append(batcher.call(4)), daemon=True)
    other.start()
    other.join(10)
    assert interrupted.raised > 100
    assert answered == [8]
    batcher.close()
