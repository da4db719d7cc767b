"""Code that blocks, on a stack of its own within an event loop."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy.util import await_only

from txsaga.aio import stacks
from txsaga.core.fibers import current_fiber, raise_if_cancelled, run_blocking
from txsaga.errors import ConfigError
from txsaga.wiring import connecting
from txsaga.wiring.connecting import in_loop

WORD: contextvars.ContextVar[str] = contextvars.ContextVar("word", default="none")


class Held:
    """What a work holds."""


async def later(answer: object, seconds: float = 0.0) -> Any:
    await asyncio.sleep(seconds)
    return answer


def awaits(made: Callable[[], Awaitable[Any]]) -> Callable[[], Any]:
    return lambda: await_only(made())


def test_what_it_waits_for_comes_back_to_it() -> None:
    def work() -> list[int]:
        return [await_only(later(at)) for at in range(3)]

    assert asyncio.run(in_loop(work)) == [0, 1, 2]


def test_tasks_wait_beside_each_other() -> None:
    order: list[int] = []

    async def one(at: int) -> None:
        await in_loop(awaits(lambda: later(None, 0.03 - at * 0.01)))
        order.append(at)

    async def all() -> None:
        await asyncio.gather(*map(one, range(3)))

    asyncio.run(all())
    assert order == [2, 1, 0]


def test_what_it_raises_comes_out_as_it_is_and_the_stack_serves_the_next() -> None:
    boom = ValueError("no")

    def fail() -> None:
        await_only(later(None))
        raise boom

    async def work() -> int:
        for _ in range(3):
            with pytest.raises(ValueError) as caught:
                await in_loop(fail)
            assert caught.value is boom
        return await in_loop(lambda: 1)

    assert asyncio.run(work()) == 1


def test_what_it_waits_for_raises_into_it() -> None:
    async def no() -> None:
        raise KeyError("k")

    def work() -> str:
        try:
            await_only(no())
        except KeyError:
            return "caught"
        return "missed"

    assert asyncio.run(in_loop(work)) == "caught"


def test_stacks_are_used_again_and_keep_nothing_of_their_last_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "_idle", stacks._IdleStacks())

    async def work() -> list[bool]:
        kept: list[weakref.ref[Held]] = []

        def hold(fails: bool) -> Held:
            held = Held()
            kept.append(weakref.ref(held))
            await_only(later(None))
            if fails:
                raise ValueError(held)
            return held

        await in_loop(lambda: hold(False))
        with pytest.raises(ValueError):
            await in_loop(lambda: hold(True))
        assert len(stacks._idle.stacks) == 1
        gc.collect()
        return [each() is None for each in kept]

    assert asyncio.run(work()) == [True, True]


def test_no_more_stacks_are_kept_than_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "KEPT", 3)
    monkeypatch.setattr(stacks, "_idle", stacks._IdleStacks())

    async def work() -> None:
        await asyncio.gather(*(in_loop(awaits(lambda: later(None))) for _ in range(10)))

    asyncio.run(work())
    assert len(stacks._idle.stacks) == 3


def test_a_stack_sees_the_context_of_its_task() -> None:
    async def one(word: str) -> str:
        WORD.set(word)
        await in_loop(awaits(lambda: later(None, 0.01)))
        return await in_loop(WORD.get)

    async def all() -> list[str]:
        return await asyncio.gather(*map(one, "abc"))

    assert asyncio.run(all()) == ["a", "b", "c"]


def test_each_thread_has_loops_and_stacks_of_its_own() -> None:
    found: list[object] = []

    def run() -> None:
        found.append(asyncio.run(in_loop(awaits(lambda: later(threading.get_ident())))))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(thread.ident for thread in threads)  # type: ignore[type-var]


def test_a_stack_is_known_within_its_work_alone() -> None:
    async def work() -> None:
        assert current_fiber() is None
        assert await in_loop(current_fiber) is not None
        assert current_fiber() is None

    asyncio.run(work())


def test_what_blocks_is_done_in_a_thread_that_knows_of_no_stack() -> None:
    async def work() -> tuple[bool, object]:
        return await in_loop(
            lambda: run_blocking(lambda: (threading.current_thread() is threading.main_thread(), current_fiber()))
        )

    assert asyncio.run(work()) == (False, None)


def test_what_a_work_begins_beside_itself_is_on_no_stack() -> None:
    async def run() -> list[object]:
        begun: list[asyncio.Future[object]] = []

        async def beside() -> object:
            return current_fiber(), await asyncio.to_thread(current_fiber)

        def work() -> None:
            begun.append(asyncio.ensure_future(beside()))
            await_only(later(None, 0.01))
            assert current_fiber() is not None

        await in_loop(work)
        return [await each for each in begun]

    assert asyncio.run(run()) == [(None, None)]


def test_a_cancellation_is_not_lost_behind_an_error() -> None:
    async def run() -> None:
        go = threading.Event()

        def work() -> None:
            run_blocking(lambda: go.wait(5))
            raise ValueError("behind it")

        task = asyncio.ensure_future(in_loop(work))
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.sleep(0.02)
        go.set()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert "behind it" in str(caught.value.__cause__)

    asyncio.run(run())


def test_a_task_that_is_cancelled_hears_what_a_thread_did_first() -> None:
    go, done = threading.Event(), list[str]()

    def slow() -> None:
        assert go.wait(5)

    def work() -> None:
        run_blocking(slow)
        done.append("heard")

    async def run() -> None:
        task = asyncio.ensure_future(in_loop(work))
        await asyncio.sleep(0.02)
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0.02)
            assert not task.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert done == ["heard"]


def test_a_task_that_waits_for_others_is_cancelled_at_once() -> None:
    async def run() -> None:
        task = asyncio.ensure_future(in_loop(awaits(lambda: later(None, 60))))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 1)

    asyncio.run(run())


def test_what_is_unbroken_lets_what_it_waits_for_come_to_its_end() -> None:
    def work() -> list[object]:
        heard = [await_only(later("first", 0.05)), await_only(later("second"))]
        with suppress(asyncio.CancelledError):
            raise_if_cancelled()  # nobody is asked to give up within
        told.append(heard)
        return heard

    async def all() -> None:
        doing = asyncio.ensure_future(in_loop(work, unbroken=True))
        for _ in range(2):
            await asyncio.sleep(0.01)
            doing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await doing

    told: list[object] = []
    asyncio.run(all())
    assert told == [["first", "second"]]


def test_what_is_unbroken_lets_any_foreign_awaitable_come_to_its_end() -> None:
    class Foreign:
        def __await__(self) -> Generator[Any, None, str]:
            return later("whole", 0.05).__await__()

    async def all() -> None:
        doing = asyncio.ensure_future(in_loop(lambda: told.append(await_only(Foreign())), unbroken=True))
        await asyncio.sleep(0.01)
        doing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await doing

    told: list[str] = []
    asyncio.run(all())
    assert told == ["whole"]


def test_an_error_of_what_is_unbroken_stands_behind_the_cancellation() -> None:
    async def no() -> None:
        await asyncio.sleep(0.03)
        raise KeyError("k")

    async def all() -> None:
        doing = asyncio.ensure_future(in_loop(awaits(no), unbroken=True))
        await asyncio.sleep(0.01)
        doing.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await doing
        assert isinstance(cancelled.value.__cause__, KeyError)

    asyncio.run(all())


def test_a_work_whose_loop_is_gone_is_let_go() -> None:
    left: list[str] = []

    def work() -> None:
        try:
            await_only(later(None, 60))
        finally:
            left.append("left")

    loop = asyncio.new_event_loop()
    task = loop.create_task(in_loop(work))
    loop.run_until_complete(asyncio.sleep(0.01))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()
    assert left == ["left"]


def test_who_lacks_what_it_takes_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "txsaga.aio.stacks", None)
    connecting._stacks.cache_clear()
    try:
        with pytest.raises(ConfigError, match=r"txsaga\[asyncio\]"):
            asyncio.run(in_loop(lambda: 1))
    finally:
        connecting._stacks.cache_clear()
