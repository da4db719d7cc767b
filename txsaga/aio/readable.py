"""
Waiting within an event loop until a socket can be read: the loop is told of all of them once, not of each wait.

The kernel keeps the set of sockets, and asking it for one more answer is a single call; telling the loop of a socket
and taking it back again costs five times as much. Where the system has no such sets, the loop is told each time. If a
wait is dropped, what comes for it wakes nobody.
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
    """Wait so many seconds, from now on; False when nothing came."""
    loop = asyncio.get_running_loop()
    return readable_by(loop, socket, loop.time() + patience)


def readable_by(loop: AbstractEventLoop, socket: int, until: float) -> Awaitable[bool]:
    """Wait up to a time of the loop's; False when nothing came."""
    if not ONCE:
        return _told_each_time(loop, socket, until)
    kept = _sets.get(loop)
    found = kept() if kept is not None else None
    if found is None:
        found = _Sockets(loop)
        _sets[loop] = ref(found)
    return found.told(loop, socket, until)


class _Sockets:
    """The sockets that are waited for in one loop, which keeps it till it is closed."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._set = select.epoll()
        self._waiting: dict[int, tuple[Future[bool], float]] = {}
        self._due = math.inf  # one look for all: most answers come long before their time is up
        loop.add_reader(self._set.fileno(), self._tell)

    def told(self, loop: AbstractEventLoop, socket: int, until: float) -> Future[bool]:
        """Return what is told once the socket can be read or its time is up.

        A wait that is dropped stays till then, or till its number is waited for again.
        """
        try:
            self._set.modify(socket, ONCE)
        except FileNotFoundError:  # a new one, or one whose number was another's
            self._set.register(socket, ONCE)
        told: Future[bool] = loop.create_future()
        if socket in self._waiting:  # the number was another's, or two wait: the first is told no more
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
        loop.call_at(when, self._in_time, loop, when)  # not kept: it holds the loop, and this

    def _in_time(self, loop: AbstractEventLoop, when: float) -> None:
        """Tell who has waited long enough, and look again when the next has; a look that was put forward is void."""
        if when != self._due:
            return
        self._tell()  # what is there has come in time, even if a loop that stood still looks at it only now
        self._due, now = math.inf, max(when, loop.time())  # a loop may be a breath early
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
