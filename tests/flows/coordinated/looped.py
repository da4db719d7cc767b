"""The bank whose transfers run within an event loop."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from tests.flows.coordinated.bank import TRANSFERS, Bank, pay
from txsaga.flows.coordinated import AsyncCoordinated

T = TypeVar("T")


@dataclass(slots=True)
class LoopedBank:
    """A bank, and the engines of asyncio's by which its transfers work."""

    bank: Bank
    loops: Mapping[str, AsyncEngine]

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in a loop of its own, and close what it opened."""

        async def whole() -> T:
            try:
                return await asyncio.wait_for(work(), 20)
            finally:
                for engine in self.loops.values():
                    await engine.dispose()

        try:
            return asyncio.run(whole())
        finally:
            gc.collect()

    async def transfer(self, tx: AsyncCoordinated, text: str = "10") -> None:
        """Move ten from the first account to the second, and tell."""
        for name, change in zip(self.loops, (-10, 10), strict=True):
            async with tx.on(name) as connection:
                await move(connection, change)
        await tx.send(TRANSFERS, text.encode())


async def move(connection: AsyncConnection, change: int, account: int = 1) -> None:
    """Change a balance."""
    await connection.run_sync(pay, change, account)
