"""
Waiting within an event loop until a socket is readable: all sockets share one registration with the loop.

The kernel keeps the set of sockets, and waiting for one more answer is a single call; adding a socket to the loop and
removing it costs five times as much. Systems without epoll do that for each wait. If a wait is abandoned, its answer
wakes no task.
"""

from __future__ import annotations

import asyncio
import math
import select
from asyncio import AbstractEventLoop, Future
from collections.abc import Awaitable
from weakref import WeakKeyDictionary, ref

ONCE = getattr(select, "EPOLLIN", 0) | getattr(select, "EPOLLONESHOT", 0)


def is_readable(socket: int, patience: float = math.inf) -> Awaitable[bool]:
    """Wait up to `patience` seconds from now; False if nothing came."""
    loop = asyncio.get_running_loop()
    return readable_by(loop, socket, loop.time() + patience)


def readable_by(loop: AbstractEventLoop, socket: int, until: float) -> Awaitable[bool]:
    """Wait until a time of the loop's clock; False if nothing came."""
    if not ONCE:
        return _told_each_time(loop, socket, until)
    kept = _sets.get(loop)
    found = kept() if kept is not None else None
    if found is None:
        found = _Sockets(loop)
        _sets[loop] = ref(found)
    return found.told(loop, socket, until)


class _Sockets:
    """The sockets waited for in one loop, which keeps this object until it is closed."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._set = select.epoll()
        self._waiting: dict[int, tuple[Future[bool], float]] = {}
        self._due = math.inf  # one timer for all: most answers come long before their time is up
        loop.add_reader(self._set.fileno(), self._tell)

    def told(self, loop: AbstractEventLoop, socket: int, until: float) -> Future[bool]:
        """Return a future that is set once the socket is readable or its time is up.

        An abandoned wait stays until then, or until its file number is waited for again.
        """
        try:
            self._set.modify(socket, ONCE)
        except FileNotFoundError:  # a new socket, or a reused number
            self._set.register(socket, ONCE)
        told: Future[bool] = loop.create_future()
        if socket in self._waiting:  # a reused number, or two tasks wait: the first gets False
            _tell(self._waiting[socket][0], False)
        self._waiting[socket] = told, until
        if until < self._due:
            self._look_at(loop, until)
        return told

    def _tell(self) -> None:
        for socket, _ in self._set.poll(0):
            if socket in self._waiting:
                _tell(self._waiting.pop(socket)[0], True)

    def _look_at(self, loop: AbstractEventLoop, when: float) -> None:
        self._due = when
        loop.call_at(when, self._in_time, loop, when)  # not stored: it refers to the loop, and to this object

    def _in_time(self, loop: AbstractEventLoop, when: float) -> None:
        """End the waits whose time is up, and set the timer for the next; a timer that was replaced does nothing."""
        if when != self._due:
            return
        self._tell()  # what is readable came in time, even if a blocked loop sees it only now
        self._due, now = math.inf, max(when, loop.time())  # a loop may be slightly early
        for socket in [each for each, (_, until) in self._waiting.items() if until <= now]:
            _tell(self._waiting.pop(socket)[0], False)
        soonest = min([until for _, until in self._waiting.values()], default=math.inf)
        if soonest < math.inf:
            self._look_at(loop, soonest)


_sets: WeakKeyDictionary[AbstractEventLoop, ref[_Sockets]] = WeakKeyDictionary()


async def _told_each_time(loop: AbstractEventLoop, socket: int, until: float) -> bool:
    told: Future[bool] = loop.create_future()
    timer = None if until == math.inf else loop.call_at(until, _tell, told, False)
    loop.add_reader(socket, _tell, told, True)
    try:
        return await told
    finally:
        loop.remove_reader(socket)
        if timer is not None:
            timer.cancel()


def _tell(told: Future[bool], readable: bool) -> None:
    if not told.done():
        told.set_result(readable)
