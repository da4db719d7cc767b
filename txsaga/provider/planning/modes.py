"""
The mode tables: where work, inputs and outputs are settled, by what was declared.

Each is one table. A key is what was declared; None in a key fits whatever stands there. Exactly one entry fits each
declaration. The plan reads them, and so does the page about modes; no other place decides it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, TypeVar

from txsaga.flows.declaration import InputKind, Persistence, ResourceMode, StepMode, TransactionMode
from txsaga.resources.capabilities import ResourceKind

Key = TypeVar("Key", bound=tuple[object, ...])
Entry = TypeVar("Entry")


class Settles(StrEnum):
    """What settles a piece of work."""

    MAIN = "with the flow"  # by its one decision
    LANE = "with its lane"  # by the lane's own commit or rollback, else it follows the outcome
    OWN_END = "at its own end"  # when its step has ended; in commit mode, when the path below it has
    AT_ONCE = "at once"  # by itself; nobody can take it back


class Received(NamedTuple):
    """What an input's mode means."""

    settles: Settles  # the input itself
    inherited: bool  # whether steps and outputs in automatic mode take part


INPUTS: Mapping[tuple[TransactionMode, bool | None, bool | None], Received] = {
    (TransactionMode.AUTOMATIC, None, True): Received(Settles.MAIN, True),
    (TransactionMode.AUTOMATIC, None, False): Received(Settles.AT_ONCE, False),
    (TransactionMode.YES, True, None): Received(Settles.MAIN, True),
    (TransactionMode.YES, False, None): Received(Settles.MAIN, False),
    (TransactionMode.NO, None, None): Received(Settles.AT_ONCE, False),
}
"""By the input's mode, whether the flow is coordinated, whether what was received is persistent."""

PUT_BACK: Mapping[InputKind, bool] = {
    InputKind.TOPIC: True,
    InputKind.QUEUE: True,
    InputKind.FILES: False,
    InputKind.TRIGGER: True,
}
"""Whether a rollback puts the input back. One that it does not settles at its own end and has retries instead."""

STEPS: Mapping[tuple[ResourceMode, StepMode | None, bool | None, bool | None], Settles] = {
    (ResourceMode.MAIN, StepMode.AUTOMATIC, False, True): Settles.MAIN,
    (ResourceMode.MAIN, StepMode.AUTOMATIC, False, False): Settles.OWN_END,
    (ResourceMode.MAIN, StepMode.COMMIT, False, None): Settles.OWN_END,
    (ResourceMode.MAIN, None, True, None): Settles.LANE,
    (ResourceMode.LANE, StepMode.AUTOMATIC, None, None): Settles.LANE,
    (ResourceMode.LANE, StepMode.COMMIT, None, None): Settles.OWN_END,
    (ResourceMode.LOCAL, None, None, None): Settles.OWN_END,
}
"""By the mode of the resource, the mode of the step, the mark on the statement, whether the resource takes part."""

QUEUES: Mapping[Settles, Settles] = {
    Settles.MAIN: Settles.MAIN,
    Settles.LANE: Settles.AT_ONCE,
    Settles.OWN_END: Settles.AT_ONCE,
}
"""What becomes of that on a queue, where everything outside main commits by itself."""

QUEUE_KINDS = frozenset({ResourceKind.QUEUE, ResourceKind.BROKER})

OUTPUTS: Mapping[tuple[TransactionMode, bool | None], Settles] = {
    (TransactionMode.AUTOMATIC, True): Settles.MAIN,
    (TransactionMode.AUTOMATIC, False): Settles.AT_ONCE,
    (TransactionMode.YES, None): Settles.MAIN,
    (TransactionMode.NO, None): Settles.AT_ONCE,
}
"""By the output's mode, whether outputs in automatic mode take part."""

PERSISTENCE: Mapping[tuple[Persistence, bool | None, bool | None], bool] = {
    (Persistence.AUTOMATIC, True, None): True,
    (Persistence.AUTOMATIC, False, None): False,
    (Persistence.YES, None, None): True,
    (Persistence.NO, None, None): False,
    (Persistence.AS_QUEUE, None, True): True,
    (Persistence.AS_QUEUE, None, False): False,
}
"""By the output's persistence, whether the input was persistent, what the topic says."""


def fitting(table: Mapping[Key, Entry], declared: tuple[object, ...]) -> Entry:
    """Return the entry of a table that fits what was declared."""
    (entry,) = (entry for key, entry in table.items() if _fits(key, declared))
    return entry


def _fits(key: tuple[object, ...], declared: tuple[object, ...]) -> bool:
    return all(wanted is None or wanted == given for wanted, given in zip(key, declared, strict=True))
