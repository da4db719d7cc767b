"""
A producer on a home database: it can also send inside the caller's own transaction there, in that one commit.

It stores nothing itself. If the caller never commits, nothing was sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from txsaga.engine.async_joined import AsyncJoined
from txsaga.engine.home import Home, Joined
from txsaga.engine.kernel import Kernel
from txsaga.engine.producer import Producer, Settings

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection


class JoiningProducer(Producer):
    """A producer that can send inside the caller's own transaction."""

    def __init__(self, kernel: Kernel, name: str, settings: Settings, home: Home) -> None:
        super().__init__(kernel, name, settings)
        self._home = home

    @overload
    def join(self, connection: Connection) -> Joined: ...

    @overload
    def join(self, connection: AsyncConnection) -> AsyncJoined: ...

    def join(self, connection: Connection | AsyncConnection) -> Joined | AsyncJoined:
        """Send inside your own transaction in the home database: one commit, no half."""
        return self._home.join(connection, self._kernel, self.group.id)
