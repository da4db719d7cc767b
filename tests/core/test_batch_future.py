"""Futures of the core in threads and in asyncio alike."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError, as_completed, wait
from threading import Thread, Timer

import pytest

from txsaga.core.batch_future import BatchFuture, wake
from txsaga.core.batcher import Batcher
from txsaga.errors import InvalidMessage


def doubled(items: Sequence[int]) -> Sequence[int]:
    return [item * 2 for item in items]


def test_a_call_can_be_awaited() -> None:
    batcher = Batcher("test", doubled)

    async def main() -> list[int]:
        return await asyncio.gather(*(_awaited(batcher, item) for item in range(200)))

    assert asyncio.run(main()) == [item * 2 for item in range(200)]


async def _awaited(batcher: Batcher[int, int], item: int) -> int:
    return await batcher.submit(item)


def test_awaiting_a_finished_call_returns_at_once() -> None:
    call: BatchFuture[int] = BatchFuture()
    call.set_result(7)

    async def main() -> int:
        return await call

    assert asyncio.run(main()) == 7


def test_an_error_is_raised_where_it_is_awaited() -> None:
    call: BatchFuture[int] = BatchFuture()

    async def main() -> None:
        waiting = asyncio.ensure_future(_once(call))
        await asyncio.sleep(0)
        call.set_exception(InvalidMessage("no"))
        wake([call])
        with pytest.raises(InvalidMessage, match="no"):
            await waiting

    asyncio.run(main())


async def _once(call: BatchFuture[int]) -> int:
    return await call


def test_a_batch_wakes_each_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[BatchFuture[int]] = [BatchFuture() for _ in range(50)]

    async def main() -> int:
        loop = asyncio.get_running_loop()
        woken = 0
        real = loop.call_soon_threadsafe

        def counted(callback: object, *args: object, **options: object) -> object:
            nonlocal woken
            woken += 1
            return real(callback, *args, **options)  # type: ignore[arg-type]

        tasks = [asyncio.ensure_future(_once(call)) for call in calls]
        await asyncio.sleep(0)
        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        for at, call in enumerate(calls):
            call.set_result(at)
        wake(calls)
        assert await asyncio.gather(*tasks) == list(range(50))
        return woken

    assert asyncio.run(main()) == 1


def test_a_cancelled_awaiter_leaves_the_call_alone() -> None:
    call: BatchFuture[int] = BatchFuture()

    async def main() -> None:
        waiting = asyncio.ensure_future(_once(call))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        call.set_result(3)
        wake([call])
        assert await _once(call) == 3

    asyncio.run(main())


def test_a_callback_reads_the_answer() -> None:
    batcher = Batcher("test", doubled)
    read: Future[int] = Future()
    batcher.submit(4).add_done_callback(lambda done: read.set_result(done.result()))
    assert read.result(10) == 8


def test_calls_are_waited_for_as_any_futures() -> None:
    batcher = Batcher("test", doubled)
    calls = [batcher.submit(item) for item in range(50)]
    assert not wait(calls, timeout=10).not_done
    assert sorted(done.result() for done in as_completed(calls, timeout=10)) == [2 * item for item in range(50)]
    late: BatchFuture[int] = BatchFuture()
    assert wait([late, *calls], timeout=0).not_done == {late}


def test_who_waits_for_several_hears_of_an_error() -> None:
    good, bad = BatchFuture[int](), BatchFuture[int]()

    def answer() -> None:
        good.set_result(1)
        bad.set_exception(InvalidMessage("no"))

    timer = Timer(0.05, answer)
    timer.start()
    assert wait([good, bad], timeout=10).done == {good, bad}
    assert isinstance(bad.exception(), InvalidMessage)
    assert good.exception() is None
    timer.join()


def test_who_waits_for_a_call_and_another_future_stops_nobody_who_does_the_same() -> None:
    stop: Future[int] = Future()
    calls = [BatchFuture[int]() for _ in range(50)]

    def waits() -> None:
        for call in calls:
            wait([call, stop], timeout=0)
            wait([stop, *calls], timeout=0)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [Thread(target=waits, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in threads)
    finally:
        sys.setswitchinterval(before)


def test_a_call_is_answered_once() -> None:
    call: BatchFuture[int] = BatchFuture()
    call.set_result(1)
    with pytest.raises(InvalidStateError):
        call.set_exception(InvalidMessage("no"))
    assert call.result() == 1


def test_who_waited_long_enough_is_told() -> None:
    with pytest.raises(TimeoutError):
        BatchFuture[int]().result(0.01)
    with pytest.raises(TimeoutError):
        BatchFuture[int]().exception(0.01)
