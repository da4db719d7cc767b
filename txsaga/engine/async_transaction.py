"""
The transaction block for asyncio: the block of threads, of which only the task waits.

    async with producer.transaction() as tx:
        await tx.send("orders", b"…")
        async with tx.local("billing") as connection:
            await connection.execute(…)

Whatever holds of every block in a loop `AsyncBlock` has. If the process dies, check-back settles it as any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from txsaga.engine.async_block import Across, AsyncBlock
from txsaga.engine.late import Slot
from txsaga.engine.waiting import away
from txsaga.ports.loops import Loops

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

    from txsaga.engine.transaction import Transaction  # noqa: F401  # of its base


class AsyncSlot:
    """A place for a body that is known only in the local transaction."""

    def __init__(self, slot: Slot, in_loop: Loops) -> None:
        self._slot, self._in_loop = slot, in_loop

    async def fill(self, connection: AsyncConnection, body: bytes) -> None:
        """Store the body beside the evidence, in the local transaction."""
        await self._in_loop(partial(self._slot.fill, connection, body))  # type: ignore[arg-type]  # it is compared


class AsyncTransaction(AsyncBlock["Transaction"]):
    """One transaction of a producer, within an event loop."""

    async def later(
        self,
        topic: str,
        *,
        key: str | None = None,
        tag: str | None = None,
        headers: Mapping[str, str] | None = None,
        ordering_key: str | None = None,
    ) -> AsyncSlot:
        """Keep a place for a message whose body is known only in `local`."""
        options: Any = {"key": key, "tag": tag, "headers": headers, "ordering_key": ordering_key}
        kept = partial(self._block.later, topic, **options)
        return AsyncSlot(await self._alone(lambda: away(kept)), self._in_loop)

    def local(self, resource: str | AsyncEngine) -> Across[AsyncConnection]:
        """Close the transaction and run local work that carries its own evidence."""
        return Across(self._block.local(resource), self._in_loop, self._one)  # type: ignore[arg-type]  # as the resource, so its connection

    async def prepare(self) -> None:
        """Close the transaction before local work that is no SQL; the checker answers for it later."""
        await self._alone(self._block.prepare)
