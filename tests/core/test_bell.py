"""Threads that sleep are woken one behind the other, and nobody is left behind by one who goes."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from txsaga.core.batch_future import BatchFuture, Bell, ring, wake
from txsaga.core.batcher import Batcher

SECONDS = 10.0


def rings(bell: Bell) -> bool:
    return bell._rung.acquire(blocking=False)


@contextmanager
def switching_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def test_the_next_one_is_woken_by_who_goes_on() -> None:
    first, second, third = Bell(), Bell(), Bell()
    ring([first, second, third])
    assert (rings(first), rings(second)) == (True, False)
    first.leave()
    assert (rings(second), rings(third)) == (True, False)
    second.leave()
    assert rings(third)


def test_who_left_before_it_was_rung_holds_up_nobody() -> None:
    first, second, third = Bell(), Bell(), Bell()
    first.leave()
    second.leave()
    ring([first, second, third])
    assert rings(third)


def test_who_leaves_twice_wakes_two_and_loses_none() -> None:
    bells = [Bell() for _ in range(4)]
    ring(bells)
    bells[0].leave()
    bells[0].leave()
    bells[1].leave()
    assert [rings(bell) for bell in bells] == [True] * 4


def test_a_timeout_ends_the_sleep() -> None:
    bell = Bell()
    bell.sleep(0.01)
    bell.leave()
    ring([bell])
    assert rings(bell)


def test_who_was_forgotten_looks_up_by_itself() -> None:
    """A thread may be stopped by an exception just where it would have rung for the next one."""
    first, second = BatchFuture[int](), BatchFuture[int]()
    first._notes.append(Bell())  # nobody leaves it
    waits = threading.Thread(target=second.result, daemon=True)
    waits.start()
    while not second._notes:
        pass
    for call in (first, second):
        call.set_result(1)
    wake([first, second])
    waits.join(SECONDS)
    assert not waits.is_alive()


@pytest.mark.parametrize("impatient", [False, True], ids=["patient", "some give up"])
def test_everybody_who_waits_for_a_batch_goes_on(impatient: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txsaga.core.batch_future.LOOKS_UP", 10 * SECONDS)  # nobody is forgotten
    batcher = Batcher[int, int]("test", lambda items: [item * 2 for item in items])
    wrong: list[object] = []

    def work(seed: int) -> None:
        draw = random.Random(seed)
        for item in range(150):
            call = batcher.submit(item)
            if impatient and draw.random() < 0.5:
                try:
                    call.result(draw.random() / 10_000)
                except TimeoutError:
                    pass
            if call.result() != item * 2:
                wrong.append(item)

    with switching_often():
        threads = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(24)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + SECONDS
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
    assert not [thread.name for thread in threads if thread.is_alive()]
    assert not wrong
    batcher.close()
