"""
The features only a home database has: snapshots, sends inside the caller's own transaction, resources.

The broker delegates to this port; the implementation is outside the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, Unpack, overload

from txsaga.core.fibers import Loops
from txsaga.core.kernel import Kernel
from txsaga.core.message import Message, MessageOptions
from txsaga.lake.cut import Cut
from txsaga.lake.table import TableName
from txsaga.messages.producer import Producer, ProducerSettings
from txsaga.resources.participant import Enlistable, Participant

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine


class AsyncJoined:
    """Sends on one connection of an asynchronous engine."""

    def __init__(self, opened: Callable[[], Joined], in_loop: Loops) -> None:
        self._opened, self._in_loop = opened, in_loop

    async def send(self, topic: str | Message, body: bytes | None = None, **options: Unpack[MessageOptions]) -> int:
        """Add a message; it becomes visible with the caller's commit."""
        return await self._in_loop(lambda: self._opened().send(topic, body, **options))

    async def send_many(
        self, topic: str, bodies: list[bytes], *, keys: list[str] | None = None, tags: list[str] | None = None
    ) -> list[int]:
        """Add many messages of one topic as columns."""
        return await self._in_loop(lambda: self._opened().send_many(topic, bodies, keys=keys, tags=tags))


class Joined(Protocol):
    """Sends inside the caller's own transaction in the home database."""

    def send(self, topic: str | Message, body: bytes | None = None, **options: Unpack[MessageOptions]) -> int:
        """Add a message; it becomes visible with the caller's commit."""

    def send_many(
        self, topic: str, bodies: list[bytes], *, keys: list[str] | None = None, tags: list[str] | None = None
    ) -> list[int]:
        """Add many messages of one topic as columns."""


class HomeDatabase(Protocol):
    """The features only a home database has: snapshots, joined sends, resources."""

    def cut(self, tables: Sequence[TableName] = ()) -> AbstractContextManager[Cut]:
        """Open a snapshot with these tables; its home connection reads the rows of that moment until the block ends."""

    @overload
    def join(self, connection: Connection, kernel: Kernel, group: int) -> Joined: ...

    @overload
    def join(self, connection: AsyncConnection, kernel: Kernel, group: int) -> AsyncJoined: ...

    def join(self, connection: Connection | AsyncConnection, kernel: Kernel, group: int) -> Joined | AsyncJoined:
        """Send inside the caller's transaction."""

    def register(self, name: str, engine: Engine | AsyncEngine) -> None:
        """Register a resource."""

    def enlist(self, name: str, participant: Enlistable | Participant) -> None:
        """Register a participant that is not a database."""

    def new_member(self) -> str:
        """Return a member name that is unique within its group."""

    def jitter(self) -> float:
        """Return a random factor around 1, to keep copies of a role out of lockstep."""


class JoiningProducer(Producer):
    """A producer that can send inside the caller's own transaction."""

    def __init__(self, kernel: Kernel, name: str, settings: ProducerSettings, home: HomeDatabase) -> None:
        super().__init__(kernel, name, settings)
        self._home = home

    @overload
    def join(self, connection: Connection) -> Joined: ...

    @overload
    def join(self, connection: AsyncConnection) -> AsyncJoined: ...

    def join(self, connection: Connection | AsyncConnection) -> Joined | AsyncJoined:
        """Send inside your own transaction in the home database: one commit, no half message."""
        return self._home.join(connection, self._kernel, self.group.id)
