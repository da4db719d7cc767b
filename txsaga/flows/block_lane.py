"""
Auxiliary lanes: units of work in one resource that commit while the main transaction is open, or roll back alone.

    audit = tx.lane("audit")
    with audit as connection: …      the first statement opens a unit
    audit.commit()                   it stands, whatever becomes of the main transaction
    with audit as connection: …      the next unit; left open, it follows the outcome

A resource has one lane in a transaction. What a lane has committed is undone by a compensation, never by a rollback.
If the process dies, units that were not settled are rolled back with the transaction; one that was about to commit
says by its evidence whether it did.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from types import TracebackType
from typing import Any

from txsaga.core.decision import Decision
from txsaga.core.kernel import Kernel
from txsaga.core.records import RegisteredResource
from txsaga.errors import ConfigError, ResourceUnknown
from txsaga.flows.owner import BlockOwner
from txsaga.resources.participant import Participant


class BlockLane:
    """The auxiliary lane of one resource."""

    def __init__(self, kernel: Kernel, owner: BlockOwner, name: str, require_open: Callable[[str], None]) -> None:
        self._owner, self._require_open = owner, require_open
        self._resource, self._participant = able(kernel, name)
        self._unit: str | None = None
        self._turn = Lock()  # of threads that open a unit or settle it

    def __enter__(self) -> Any:  # a SQLAlchemy connection, of most resources
        """Work in the open unit, or open one."""
        self._require_open("work in a lane")
        with self._turn:
            if self._unit is None:
                self._unit = self._owner.open_unit(self._resource, self._participant)
            unit = self._unit
        return self._owner.work.handle(unit)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the unit open; `OwnLock` where it waited for its own transaction."""
        if error is not None and self._unit is not None:
            self._owner.work.refuse_own_lock(self._unit, error)

    def commit(self) -> None:
        """Commit the open unit now; without one there is nothing to do."""
        self._settle(Decision.COMMIT)

    def roll_back(self) -> None:
        """Roll the open unit back; the main transaction goes on."""
        self._settle(Decision.ROLLBACK)

    def _settle(self, decision: Decision) -> None:
        self._require_open("settle a lane")
        with self._turn:
            unit, self._unit = self._unit, None
        if unit is not None:
            self._owner.settle_unit(unit, decision)


def able(kernel: Kernel, name: str) -> tuple[RegisteredResource, Participant]:
    """Return a resource that has a lane; the error of one that has none says whose limit that is."""
    try:
        recorded, participant = kernel.participant(name)
    except ResourceUnknown:
        if any(topic.name == name for topic in kernel.store.registry.topics()):
            raise ConfigError(
                f"{name!r} is a topic: on a queue every uncoordinated send commits at once and can't be settled later; "
                "that is a limit of queues, not of the engine. Send with producer.send(…), or in the transaction"
            ) from None
        raise
    if not participant.capabilities.aux:
        raise ConfigError(
            f"resource {name!r} can't run auxiliary transactions: that is a limit of {participant.capabilities.kind} "
            "resources, not of the engine; work in the main transaction, or in a database"
        )
    return recorded, participant
