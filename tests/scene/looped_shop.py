"""A shop whose blocks run within an event loop, with books in a database of each kind."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from tests.scene.shop import Shop

T = TypeVar("T")

DRIVERS = {
    "psycopg": "postgresql+psycopg",
    "asyncpg": "postgresql+asyncpg",
    "asyncmy": "mysql+asyncmy",
    "aiosqlite": "sqlite+aiosqlite",
}
KINDS = {"psycopg": "postgresql", "asyncpg": "postgresql", "asyncmy": "mariadb", "aiosqlite": "sqlite"}
POOL = 4
ENTER = text("INSERT INTO entry (id) VALUES (:id)")


@dataclass(slots=True)
class Looped:
    """A shop and its books."""

    shop: Shop
    engine: AsyncEngine
    books: Engine

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in a loop of its own, and close what it opened."""

        async def whole() -> T:
            try:
                return await asyncio.wait_for(work(), 20)
            finally:
                await self.engine.dispose()

        try:
            return asyncio.run(whole())
        finally:
            gc.collect()  # the driver holds what was cancelled while it connected until it is collected

    def entries(self) -> list[int]:
        """Return what local work has committed."""
        with self.books.connect() as connection:
            return list(connection.scalars(text("SELECT id FROM entry ORDER BY id")))


def looped(shop: Shop, books: Engine, driver: str) -> Looped:
    """Make the books, and register them with an engine of asyncio's."""
    with books.begin() as connection:
        connection.execute(text("CREATE TABLE entry (id INT PRIMARY KEY)"))
    url = books.url.set(drivername=DRIVERS[driver])
    engine = create_async_engine(url, pool_size=POOL, max_overflow=0, poolclass=AsyncAdaptedQueuePool)
    shop.broker.register("books", engine)
    return Looped(shop, engine, books)


async def enter(connection: AsyncConnection, id: int) -> None:
    """Do local work: one row."""
    await connection.execute(ENTER, {"id": id})


async def while_it_runs(work: Awaitable[T]) -> tuple[T, int]:
    """Do some work and count how often the loop came round meanwhile."""
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.005)
            turns += 1

    turning = asyncio.ensure_future(turn())
    try:
        return await work, turns
    finally:
        turning.cancel()
