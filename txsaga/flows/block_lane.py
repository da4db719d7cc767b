"""
Auxiliary lanes: units of work in one resource that commit or roll back while the main transaction stays open.

    audit = tx.lane("audit")
    with audit as connection: …      the first statement opens a unit
    audit.commit()                   it is final, even if the main transaction rolls back
    with audit as connection: …      the next unit; left open, it follows the outcome

A resource has one lane in a transaction. Committed lane work is undone by a compensation, never by a rollback. If the
process dies, open units are rolled back with the transaction; for a unit that was being committed, its evidence row
shows whether it did.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Lock
from types import TracebackType
from typing import Any

from txsaga.core.decision import Decision
from txsaga.core.fibers import run_blocking
from txsaga.core.kernel import Kernel
from txsaga.core.records import RegisteredResource
from txsaga.errors import ConfigError, OutcomeUnknown, ResourceUnknown, TxSagaError
from txsaga.flows.branch import Finish
from txsaga.flows.enlisted import Enlisted
from txsaga.resources.participant import Participant


class BlockLane:
    """The auxiliary lane of one resource."""

    def __init__(self, kernel: Kernel, branches: Enlisted, name: str, require_open: Callable[[str], None]) -> None:
        self._branches, self._require_open = branches, require_open
        self._resource, self._participant = able(kernel, name)
        self._unit: str | None = None
        self._turn = Lock()  # for threads that open or settle a unit

    def __enter__(self) -> Any:  # for most resources, a SQLAlchemy connection
        """Return the session of the open unit; open one if needed."""
        self._require_open("work in a lane")
        with self._turn:
            if self._unit is None:
                self._unit = self._opened()
            unit = self._unit
        return self._branches.work.handle(unit)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the unit open; raise `OwnLock` if it waited for its own transaction."""
        if error is not None and self._unit is not None:
            self._branches.work.refuse_own_lock(self._unit, error)

    def commit(self) -> None:
        """Commit the open unit now; do nothing if there is none."""
        self._settle(Decision.COMMIT)

    def roll_back(self) -> None:
        """Roll the open unit back; the main transaction continues."""
        self._settle(Decision.ROLLBACK)

    def _settle(self, decision: Decision) -> None:
        self._require_open("settle a lane")
        with self._turn:
            unit, self._unit = self._unit, None
        if unit is None:
            return
        try:
            if decision is Decision.COMMIT:
                self._branches.work.commit(unit)
        except Exception as error:  # noqa: BLE001  # only the evidence shows whether it committed
            self._fence(unit, error)
        else:
            self._branches.work.drop(unit)
            self._note(unit, decision)

    def _opened(self) -> str:
        """Name a unit before its work; return its key."""
        (number,) = run_blocking(partial(self._branches.named, [self._resource.id], aux=True))
        key = f"{self._participant.name} unit {number}"
        self._branches.add(key, self._participant, number, aux=True)
        return key

    def _fence(self, unit: str, error: Exception) -> None:
        """Find out whether a unit has committed; if not, make sure that it never does."""
        work, name = self._branches.work, self._participant.name
        own = work.knots.found(unit)
        work.drop(unit)
        try:
            found = run_blocking(partial(self._participant.fence, work.part(unit).branch))
        except TxSagaError as silent:
            raise OutcomeUnknown(f"whether the unit of lane {name!r} has committed is not known: {silent}") from error
        self._note(unit, Decision.COMMIT if found is Finish.COMMITTED else Decision.ROLLBACK)
        if found is not Finish.COMMITTED:
            if own is not None:
                raise own from error
            raise error

    def _note(self, unit: str, decision: Decision) -> None:
        self._branches.settled_units = True
        self._branches.note(self._branches.work.part(unit).branch, decision)


def able(kernel: Kernel, name: str) -> tuple[RegisteredResource, Participant]:
    """Return a resource that can have a lane; the error for any other names the limit."""
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
