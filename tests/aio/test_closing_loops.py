"""A batcher that is closed while loops are at work with it: nobody waits for ever, and nothing accepted is lost."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from tests.contracts.samples import start
from tests.scene.loop_gate import Gate, batcher_of, begun, behind, call
from txsaga.aio.in_loop import in_loop
from txsaga.errors import BrokerClosed


def test_closing_waits_for_the_loops_of_other_threads_and_refuses_more() -> None:
    gate = Gate()
    batcher = batcher_of(gate)

    async def work() -> list[int]:
        tasks = await behind(batcher, gate, 1, 2)
        queued.set()
        answers = await asyncio.gather(*tasks)
        await asyncio.to_thread(over.wait, 10)
        with pytest.raises(BrokerClosed, match="open another"):
            await call(batcher, 3)
        return answers

    queued, over = threading.Event(), threading.Event()
    working = start(lambda: asyncio.run(work()))
    assert queued.wait(10)
    closing = start(batcher.close)
    time.sleep(0.05)
    assert not closing.done()
    gate.open.set()
    closing.result(10)
    assert gate.batches == [[0], [1, 2]]
    over.set()
    assert working.result(10) == [0, 10, 20]


def test_two_loops_that_close_do_not_wait_for_each_other() -> None:
    gate, both = Gate(), threading.Barrier(2)
    batcher = batcher_of(gate)

    async def work() -> tuple[float, int]:
        (task,) = await begun(batcher, 0)
        await asyncio.to_thread(both.wait, 10)
        before = time.monotonic()
        batcher.close()
        stood = time.monotonic() - before
        gate.open.set()
        return stood, await task

    for stood, answer in [each.result(20) for each in [start(lambda: asyncio.run(work())) for _ in range(2)]]:
        assert stood < 1
        assert answer == 0


def test_loops_that_come_while_it_is_closed_harm_nothing() -> None:
    batcher, over, failed = batcher_of(Gate().opened()), threading.Event(), list[BaseException]()

    def come_and_go() -> None:
        while not over.is_set():
            try:
                asyncio.run(in_loop(lambda: batcher.call(1)))
            except BaseException as error:  # noqa: BLE001  # looked at below
                failed.append(error)

    going = [start(come_and_go) for _ in range(2)]
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        batcher._wait_for_loops()
    over.set()
    for each in going:
        each.result(10)
    assert not failed


def test_closing_in_the_loop_itself_waits_for_nobody_and_what_is_queued_goes_on() -> None:
    gate = Gate()
    batcher = batcher_of(gate)

    async def work() -> list[int]:
        tasks = await behind(batcher, gate, 1)
        batcher.close()
        gate.open.set()
        return await asyncio.gather(*tasks)

    assert asyncio.run(work()) == [0, 10]


def test_a_loop_that_ended_within_its_batch_does_not_keep_a_close() -> None:
    gate = Gate()
    batcher = batcher_of(gate)
    loop = asyncio.new_event_loop()
    try:
        task = loop.create_task(begun(batcher, 0))
        loop.run_until_complete(task)
        loop.run_until_complete(asyncio.sleep(0.01))
        batcher.close()
        gate.open.set()
        (left,) = task.result()
        assert loop.run_until_complete(left) == 0  # it was accepted: in a loop that goes on it is done
    finally:
        loop.close()
