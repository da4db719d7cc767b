"""Waiting for sockets within a loop."""

from __future__ import annotations

import asyncio
import gc
import math
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import ref

import pytest

from txsaga.aio.readable import is_readable, readable_by

Pair = tuple[socket.socket, socket.socket]


@contextmanager
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 20))


def test_what_is_there_is_told_at_once_and_again() -> None:
    async def work() -> None:
        with pair() as (ours, theirs):
            theirs.send(b"x")
            for _ in range(3):
                assert await is_readable(ours.fileno())
            assert ours.recv(1) == b"x"
            assert not await is_readable(ours.fileno(), 0.02)

    run(work)


def test_each_of_many_is_told_of_its_own() -> None:
    async def work() -> None:
        pairs = [socket.socketpair() for _ in range(5)]
        told: list[int] = []

        async def wait(at: int) -> None:
            assert await is_readable(pairs[at][0].fileno(), 10)
            told.append(at)

        waiting = [asyncio.ensure_future(wait(at)) for at in range(5)]
        for at in (3, 0, 4, 1, 2):
            await asyncio.sleep(0.01)
            pairs[at][1].send(b"x")
            await waiting[at]
        assert told == [3, 0, 4, 1, 2]
        for each in pairs:
            for end in each:
                end.close()

    run(work)


def test_patience_ends_each_in_its_own_time() -> None:
    async def work() -> None:
        with pair() as (long, _), pair() as (short, _), pair() as (ever, last):
            began, loop = asyncio.get_running_loop().time(), asyncio.get_running_loop()
            patient = asyncio.ensure_future(is_readable(long.fileno(), 0.3))
            endless = asyncio.ensure_future(is_readable(ever.fileno(), math.inf))
            assert not await is_readable(short.fileno(), 0.1)
            assert loop.time() - began >= 0.1
            assert not patient.done()
            assert not await patient
            assert loop.time() - began >= 0.3
            last.send(b"x")
            assert await endless

    run(work)


def test_a_wait_that_was_cancelled_leaves_nothing_behind() -> None:
    async def work() -> None:
        with pair() as (ours, theirs):
            dropped = asyncio.ensure_future(is_readable(ours.fileno(), 10))
            await asyncio.sleep(0)
            dropped.cancel()
            with pytest.raises(asyncio.CancelledError):
                await dropped
            theirs.send(b"x")
            await asyncio.sleep(0.01)
            assert await is_readable(ours.fileno(), 10)

    run(work)


def test_a_number_that_was_another_sockets_is_waited_for_anew() -> None:
    async def work() -> None:
        for _ in range(3):
            with pair() as (ours, theirs):
                waiting = asyncio.ensure_future(is_readable(ours.fileno(), 10))
                await asyncio.sleep(0)
                theirs.send(b"x")
                assert await waiting

    run(work)


def test_whoever_takes_a_socket_over_does_not_leave_the_other_waiting() -> None:
    async def work() -> None:
        with pair() as (ours, theirs):
            first = asyncio.ensure_future(is_readable(ours.fileno(), 0.5))
            await asyncio.sleep(0)
            second = asyncio.ensure_future(is_readable(ours.fileno(), 10))
            assert not await first
            theirs.send(b"x")
            second.cancel()  # a loop has one reader of a socket, and the first took it away with it

    run(work)


def test_a_wait_without_any_patience_spoils_no_later_one() -> None:
    async def work() -> None:
        with pair() as (ours, theirs):
            for patience in (0.0, -1.0, 0.0001):
                assert not await is_readable(ours.fileno(), patience)
            assert not await is_readable(ours.fileno(), 0.05)
            theirs.send(b"x")
            assert await is_readable(ours.fileno(), 0.05)

    run(work)


def test_loops_that_are_over_leave_no_descriptors_to_the_collector() -> None:
    def held() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    async def work() -> None:
        with pair() as (ours, theirs):
            theirs.send(b"x")
            assert await is_readable(ours.fileno(), 600)

    if not Path("/proc/self/fd").exists():
        return
    run(work)
    gc.collect()
    gc.disable()
    try:
        before = held()
        for _ in range(20):
            run(work)
        assert held() <= before + 2
    finally:
        gc.enable()


def test_who_hangs_up_is_told() -> None:
    async def work() -> None:
        with pair() as (ours, theirs):
            waiting = asyncio.ensure_future(is_readable(ours.fileno(), 10))
            await asyncio.sleep(0)
            theirs.close()
            assert await waiting

    run(work)


def test_beside_a_reader_of_the_loops_own() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (ours, theirs):
            assert not await is_readable(ours.fileno(), 0.01)
            heard = loop.create_future()
            loop.add_reader(ours.fileno(), lambda: heard.set_result(ours.recv(1)))
            theirs.send(b"x")
            assert await heard == b"x"
            loop.remove_reader(ours.fileno())
            theirs.send(b"y")
            assert await is_readable(ours.fileno(), 10)

    run(work)


def test_what_is_there_has_come_in_time_however_late_the_loop_looks() -> None:
    async def work() -> None:
        loop, late = asyncio.get_running_loop(), list[Awaitable[bool]]()
        with pair() as (silent, _), pair() as (ours, theirs):
            theirs.send(b"x")
            until = loop.time() + 0.01
            first = asyncio.ensure_future(readable_by(loop, silent.fileno(), until))
            loop.call_at(
                until - 0.005, lambda: late.append(asyncio.ensure_future(readable_by(loop, ours.fileno(), until)))
            )
            await asyncio.sleep(0)
            time.sleep(0.05)  # the loop stands still
            assert not await first
            assert await late[0]

    run(work)


async def wait(socket: int, patience: float) -> bool:
    return await is_readable(socket, patience)


def test_a_loop_that_is_over_is_kept_by_nobody() -> None:
    loop = asyncio.new_event_loop()
    with pair() as (ours, _):
        loop.run_until_complete(wait(ours.fileno(), 0.01))
        waiting = loop.create_task(wait(ours.fileno(), 600))
        loop.call_soon(waiting.cancel)
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(waiting)
    loop.close()
    kept = ref(loop)
    del loop, waiting
    gc.collect()
    assert kept() is None
