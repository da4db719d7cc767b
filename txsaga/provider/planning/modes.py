"""
The mode tables: where work, inputs and outputs are settled, depending on what was declared.

A key is what was declared; None in a key matches any value. Exactly one entry matches each declaration. The plan and
the documentation page about modes read these tables; nothing else decides the mode.
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

    MAIN = "with the flow"  # by the flow's one decision
    LANE = "with its lane"  # by the lane's own commit or rollback, otherwise by the flow's decision
    OWN_END = "at its own end"  # when its step ends; in commit mode, when the path below the step ends
    AT_ONCE = "at once"  # by itself; it cannot be undone


class Received(NamedTuple):
    """What the mode of an input means."""

    settles: Settles  # what settles the input itself
    inherited: bool  # whether steps and outputs in automatic mode take part


INPUTS: Mapping[tuple[TransactionMode, bool | None, bool | None], Received] = {
    (TransactionMode.AUTOMATIC, None, True): Received(Settles.MAIN, True),
    (TransactionMode.AUTOMATIC, None, False): Received(Settles.AT_ONCE, False),
    (TransactionMode.YES, True, None): Received(Settles.MAIN, True),
    (TransactionMode.YES, False, None): Received(Settles.MAIN, False),
    (TransactionMode.NO, None, None): Received(Settles.AT_ONCE, False),
}
"""Key: the input's mode, whether the flow is coordinated, whether the received data is persistent."""

PUT_BACK: Mapping[InputKind, bool] = {
    InputKind.TOPIC: True,
    InputKind.QUEUE: True,
    InputKind.FILES: False,
    InputKind.TRIGGER: True,
}
"""Whether a rollback puts the input back. Otherwise the input is settled as `OWN_END` and has retries instead."""

STEPS: Mapping[tuple[ResourceMode, StepMode | None, bool | None, bool | None], Settles] = {
    (ResourceMode.MAIN, StepMode.AUTOMATIC, False, True): Settles.MAIN,
    (ResourceMode.MAIN, StepMode.AUTOMATIC, False, False): Settles.OWN_END,
    (ResourceMode.MAIN, StepMode.COMMIT, False, None): Settles.OWN_END,
    (ResourceMode.MAIN, None, True, None): Settles.LANE,
    (ResourceMode.LANE, StepMode.AUTOMATIC, None, None): Settles.LANE,
    (ResourceMode.LANE, StepMode.COMMIT, None, None): Settles.OWN_END,
    (ResourceMode.LOCAL, None, None, None): Settles.OWN_END,
}
"""Key: resource mode, step mode, whether the statement is uncoordinated, whether the resource takes part."""

QUEUES: Mapping[Settles, Settles] = {
    Settles.MAIN: Settles.MAIN,
    Settles.LANE: Settles.AT_ONCE,
    Settles.OWN_END: Settles.AT_ONCE,
}
"""How a queue settles the same work: outside main, everything on a queue commits by itself."""

QUEUE_KINDS = frozenset({ResourceKind.QUEUE, ResourceKind.BROKER})

OUTPUTS: Mapping[tuple[TransactionMode, bool | None], Settles] = {
    (TransactionMode.AUTOMATIC, True): Settles.MAIN,
    (TransactionMode.AUTOMATIC, False): Settles.AT_ONCE,
    (TransactionMode.YES, None): Settles.MAIN,
    (TransactionMode.NO, None): Settles.AT_ONCE,
}
"""Key: the output's mode, whether outputs in automatic mode take part."""

PERSISTENCE: Mapping[tuple[Persistence, bool | None, bool | None], bool] = {
    (Persistence.AUTOMATIC, True, None): True,
    (Persistence.AUTOMATIC, False, None): False,
    (Persistence.YES, None, None): True,
    (Persistence.NO, None, None): False,
    (Persistence.AS_QUEUE, None, True): True,
    (Persistence.AS_QUEUE, None, False): False,
}
"""Key: the output's persistence, whether the input was persistent, whether the topic is persistent."""


def fitting(table: Mapping[Key, Entry], declared: tuple[object, ...]) -> Entry:
    """Return the entry of a table that matches what was declared."""
    (entry,) = (entry for key, entry in table.items() if _fits(key, declared))
    return entry


def _fits(key: tuple[object, ...], declared: tuple[object, ...]) -> bool:
    return all(wanted is None or wanted == given for wanted, given in zip(key, declared, strict=True))
