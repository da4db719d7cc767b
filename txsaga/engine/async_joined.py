"""
Sends inside the caller's own transaction, for asyncio: those of threads, of which only the task waits.

They hold no rules of their own. If the caller's transaction never commits, nothing was sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from txsaga.model.message import Message
from txsaga.ports.loops import Loops

if TYPE_CHECKING:
    from txsaga.engine.home import Joined


class AsyncJoined:
    """Sends on one connection of an asynchronous engine."""

    def __init__(self, opened: Callable[[], Joined], in_loop: Loops) -> None:
        self._opened, self._in_loop = opened, in_loop

    async def send(self, topic: str | Message, body: bytes | None = None, **options: object) -> int:
        """Add a message; it becomes visible with the caller's commit."""
        return await self._in_loop(lambda: self._opened().send(topic, body, **options))

    async def send_many(
        self, topic: str, bodies: list[bytes], *, keys: list[str] | None = None, tags: list[str] | None = None
    ) -> list[int]:
        """Add many messages of one topic as columns."""
        return await self._in_loop(lambda: self._opened().send_many(topic, bodies, keys=keys, tags=tags))
