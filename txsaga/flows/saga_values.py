"""
A saga: a transaction whose steps commit one by one, and are undone one by one if it rolls back.

An action describes work that another process must be able to do: the name of a function, a statement, an address, a
topic. It holds no code and no secrets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from datetime import datetime
from typing import NamedTuple, Self, TypedDict

from txsaga.core.decision import Decision
from txsaga.core.stored_json import as_json
from txsaga.flows.step import StepKind

RETRIES = 5
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 60.0
"""Seconds before the second try, and the longest pause between two."""


class StepTimes(TypedDict, total=False):
    """Retries, the seconds that a try may take, and the seconds before the second try."""

    retries: int
    timeout: float | None
    pause: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Work for any process that knows what it names."""

    kind: StepKind
    what: str
    resource: str | None = None
    input: Mapping[str, object] | None = None  # None: the input of the step it undoes
    retries: int | None = RETRIES  # None: retry until it is done
    timeout: float | None = None
    pause: float = FIRST_PAUSE
    options: Mapping[str, object] = field(default_factory=dict)  # of its kind: a method, a message's key

    def written(self) -> str:
        """Return it as the store keeps it."""
        return as_json(asdict(self), f"what is to be done by {self.what!r}")

    @classmethod
    def read(cls, text: str) -> Self:
        """Read what `written` returned."""
        found = json.loads(text)
        return cls(**{**found, "kind": StepKind(found["kind"])})

    def with_options(self, options: Mapping[str, object]) -> Self:
        """Return it with further options."""
        return replace(self, options={**self.options, **options})

    def pause_before(self, attempt: int, jitter: float) -> float:
        """Return the seconds to wait before another try, doubled each time."""
        return min(self.pause * 2.0 ** min(attempt - 1, 60), LONGEST_PAUSE) * jitter


class ClaimedSaga(NamedTuple):
    """A saga claimed by one driver; the previous driver is superseded."""

    txid: int
    group: int
    owner: int
    decision: Decision | None
    key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaView:
    """An unfinished saga, as `txsaga saga` lists it."""

    txid: int
    group: str
    key: str | None
    decision: Decision | None
    steps: int
    waiting: int  # unfinished steps
    driver: str | None
    until: datetime  # no other process claims it before
    stalled: bool  # an operator must resume or skip a step
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaFigures:
    """How many sagas are in which state."""

    running: int = 0  # undecided
    driving: int = 0  # decided, and being driven to their end
    waiting: int = 0  # for code, or for a resource
    stalled: int = 0  # for an operator


@dataclass(frozen=True, slots=True)
class Http:
    """A call to a service: the input as JSON, with the step's id as `Idempotency-Key`.

    2xx means done; 4xx, except 408, 425 and 429, is a definite no; anything else leaves it unknown. Headers are kept in
    the store: put no secrets there.
    """

    url: str
    _: KW_ONLY
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Send:
    """A message that is published at once, with the step's id in the header `txsaga-step`.

    Without a body it contains the input as JSON.
    """

    topic: str
    body: str | None = None
    _: KW_ONLY
    key: str | None = None
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class Undo:
    """A compensation with options that differ from its step's: resource, input, retries and times."""

    do: object
    _: KW_ONLY
    on: str | None = None
    input: Mapping[str, object] | None = None
    retries: int = RETRIES
    timeout: float | None = None
    pause: float = FIRST_PAUSE
