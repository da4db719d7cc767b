"""Waiting within an event loop until a socket is readable."""

from __future__ import annotations

import asyncio
import math
from asyncio import AbstractEventLoop, Future


async def is_readable(socket: int, patience: float = math.inf) -> bool:
    """Wait up to `patience` seconds from now; False if nothing came."""
    loop = asyncio.get_running_loop()
    return await readable_by(loop, socket, loop.time() + patience)


async def readable_by(loop: AbstractEventLoop, socket: int, until: float) -> bool:
    """Wait until a time of the loop's clock; False if nothing came."""
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
