"""
What a sensor can wait for in a store.

A wait is a value: equal waits share every poll. Its target is the plain, rendered data of a serialized trigger.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from txsaga.core.failure import contained
from txsaga.errors import ConfigError


class WaitKind(StrEnum):
    """The kinds of waits."""

    DECISION = "decision"
    CHECK_BACK = "check-back"
    MESSAGES = "messages"
    PARKED = "parked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """What one sensor waits for; fields that its kind does not use keep their defaults."""

    kind: WaitKind
    transaction: str = ""  # number or id
    checker: str = ""  # as module:function
    interval: float = 60.0
    max_checks: int = 15
    topic: str = ""
    group: str = ""
    at_least: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitAnswer:
    """How a wait ended."""

    good: bool
    told: str
    value: Mapping[str, Any]


def wait_of(kind: str, target: Mapping[str, Any]) -> Wait:
    """Parse the target of a trigger."""
    read = dict(target)
    if "transaction" in read:
        read["transaction"] = named(read["transaction"])
    for name, number in (("interval", float), ("max_checks", int), ("at_least", int)):
        if name in read:
            read[name] = number(read[name])
    return Wait(kind=WaitKind(kind), **read)


def named(transaction: object) -> str:
    """Return the number or id of a transaction, given as such or as the output of the task that began it."""
    told = told_of(transaction)
    found = told.get("txid") if isinstance(told, Mapping) else told
    if isinstance(found, (str, int)) and not isinstance(found, bool) and str(found).strip():
        return str(found).strip()
    raise ConfigError(f"{transaction!r} names no transaction; give its number, its id, or the output of its first task")


def told_of(handed_on: object) -> object:
    """Return a sensor's result, parsed if it is text: Airflow passes it as text if its task ended in the triggerer."""
    if isinstance(handed_on, str) and handed_on.lstrip().startswith("{"):
        try:
            return json.loads(handed_on)
        except ValueError:
            return handed_on
    return handed_on


Checked = tuple[WaitAnswer | None, int]
"""The answer, if there is one, and the number of checks."""


class TimedCheck:
    """A check that is running."""

    def __init__(self, check: Callable[[], Checked]) -> None:
        self._check, self._begun = check, time.monotonic()
        self._over = threading.Event()
        self._found: Checked | None = None
        self._error: Exception | None = None
        threading.Thread(target=self._run, name="txsaga-asking", daemon=True).start()

    @property
    def age(self) -> float:
        """The seconds since it began."""
        return time.monotonic() - self._begun

    def wait(self, until: float) -> bool:
        """Wait for the check until a moment of the monotonic clock; return whether it is over."""
        return self._over.wait(max(0.0, until - time.monotonic()))

    def result(self) -> Checked:
        """Return the result of the check, or raise its error."""
        if self._error is not None:
            raise self._error
        assert self._found is not None
        return self._found

    def _run(self) -> None:
        try:
            self._found = contained(self._check)
        except Exception as error:  # noqa: BLE001  # raised by `result`
            self._error = error
        finally:
            self._over.set()
