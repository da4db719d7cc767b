"""
The coordinated transaction for asyncio: the block of threads, of which only the task waits.

    async with producer.coordinated("current", "mortgage") as tx:
        async with tx.on("current") as connection:
            await connection.execute(…)
        await tx.send("transfers", b"…")

Whatever holds of every block in a loop `AsyncBlock` has. All resources are asked for their votes at once here, too. If
the process dies, recovery tells them what was decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from txsaga.engine.async_block import Across, AsyncBlock, Unbroken
from txsaga.engine.coordinator.lanes import Lane
from txsaga.engine.journal import Journal
from txsaga.engine.waiting import away
from txsaga.model.ballot import Rule
from txsaga.ports.loops import Loops

if TYPE_CHECKING:
    from txsaga.engine.coordinator.block import Coordinated  # noqa: F401  # of its base


class AsyncOn(Across[Any]):
    """Work in one resource, within an event loop; it is left open, and only an error has to be looked at."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Leave it to the transaction."""
        return None if error is None else await super().__aexit__(kind, error, trace)


class AsyncLane(AsyncOn):
    """The auxiliary lane of one resource, within an event loop: `async with lane as connection`."""

    def __init__(self, lane: Lane, in_loop: Loops, one: asyncio.Lock) -> None:
        super().__init__(lane, in_loop, one)
        self._lane = lane

    async def commit(self) -> None:
        """Commit the open unit now; without one there is nothing to do."""
        await self._settled(self._lane.commit)

    async def roll_back(self) -> None:
        """Roll the open unit back; the main transaction goes on."""
        await self._settled(self._lane.roll_back)

    async def _settled(self, end: Callable[[], None]) -> None:
        async with self._one:  # who is cancelled in this line leaves it: nothing was begun
            await self._in_loop(end, unbroken=True)


class AsyncCoordinated(AsyncBlock["Coordinated"]):
    """One coordinated transaction of a producer, within an event loop."""

    crossing = Unbroken

    def on(self, resource: str, *, driver: bool = False) -> AsyncOn:
        """Work in a resource: nothing of it is visible before the decision. The same session each time.

        With `driver` it is the connection of the driver instead of SQLAlchemy's. Tasks that share a session take turns
        in it; in different resources they work side by side.
        """
        return AsyncOn(self._block.on(resource, driver=driver), self._in_loop, self._one)

    def journal(self, resource: str) -> Journal:
        """Write down what a resource is to do when it is asked for its vote: `execute` waits for nobody."""
        return self._block.journal(resource)

    async def lane(self, resource: str) -> AsyncLane:
        """Open the auxiliary lane of a resource: its units are committed or rolled back one by one, by you."""
        return AsyncLane(await self._alone(partial(self._block.lane, resource)), self._in_loop, self._one)

    async def ballot(self, name: str, *voters: str, rule: Rule | str = Rule.ALL, needed: int | None = None) -> None:
        """Call a ballot: without its votes the transaction can only roll back."""
        called = partial(self._block.ballot, name, *voters, rule=rule, needed=needed)
        await self._alone(partial(away, called))

    async def vote(self, name: str, voter: str, *, yes: bool, evidence: Mapping[str, object] | None = None) -> bool:
        """Cast a vote in one of its ballots; False when this voter has voted."""
        cast = partial(self._block.vote, name, voter, yes=yes, evidence=evidence)
        return await self._alone(partial(away, cast))
