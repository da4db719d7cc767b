"""
A store that answers as a test wants it, in front of a real one.

Whatever it is not told to do it hands on, so that a half that it calls doubtful is stored all the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import count
from threading import Event
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from txsaga.broker import Broker
from txsaga.checkback.questions import Ask, Lead, OpenQuestion, QuestionAnswer
from txsaga.checkback.questions_store import Questions
from txsaga.core.announcer import Announcer, Observer
from txsaga.core.decision import ReplyCode
from txsaga.core.kernel import Kernel
from txsaga.core.records import Content, DecisionOutcome, End, Half, HalfView, HalvesWritten, Receipt
from txsaga.errors import ResourceUnknown, StoreError
from txsaga.lake.cut import Cut
from txsaga.lake.table import TableName
from txsaga.messages.halves_store import HalfStore
from txsaga.resources.participant import Enlistable, Participant
from txsaga.store.store import Store
from txsaga.wiring.resources import Resources


class FakeHalves(HalfStore):
    """The hot path of a store with moods."""

    def __init__(self, real: HalfStore) -> None:
        self._real = real
        self.status = ReplyCode.SEND_OK  # what a stored half is answered with
        self.refused: deque[Exception] = deque()  # each fails one prepare, before anything is stored
        self.end_code = ReplyCode.SUCCESS  # what a written decision is answered with
        self.broken: deque[Exception] = deque()  # each fails one decide, before anything is written
        self.lost: deque[Exception] = deque()  # each hides the answer of one decide that was written
        self.open = Event()  # while it is closed, no decide comes to its end
        self.open.set()
        self.sick: set[int] = set()  # what these transactions are ended with always fails
        self.entered = Event()  # some decide has begun
        self.ends: list[End] = []

    def write(self, halves: Sequence[Half], ends: Sequence[End]) -> HalvesWritten:
        if halves and self.refused:
            raise self.refused.popleft()
        self.ends += ends
        if ends:
            self.entered.set()
            assert self.open.wait(30)
        if self.sick & {end.txid for end in ends}:
            raise StoreError("the disk is full")
        if ends and self.broken:
            raise self.broken.popleft()
        receipts, standings = self._real.write(halves, ends)
        if ends and self.lost:
            raise self.lost.popleft()
        return HalvesWritten(
            [
                answer._replace(code=self.status) if isinstance(answer, Receipt) and not half.plain else answer
                for half, answer in zip(halves, receipts, strict=True)
            ],
            [a._replace(code=self.end_code) if isinstance(a, DecisionOutcome) else a for a in standings],
        )

    def views(self, txid: int) -> Sequence[HalfView]:
        return self._real.views(txid)

    def views_of(self, txids: Sequence[int]) -> Mapping[int, tuple[HalfView, ...]]:
        return self._real.views_of(txids)

    def contents(self, txid: int) -> Sequence[Content]:
        return self._real.contents(txid)

    def close(self) -> None:
        self._real.close()


class FakeQuestions(Questions):
    """Questions that can't all be put."""

    def __init__(self, real: Questions) -> None:
        self._real = real
        self.sick: set[int] = set()  # asking about these always fails
        self.asks: list[Ask] = []

    def ask(self, asks: Sequence[Ask], lead: Lead) -> Sequence[int]:
        if self.sick & {ask.txid for ask in asks}:
            raise StoreError("the disk is full")
        self.asks += asks
        return self._real.ask(asks, lead)

    def backlog(self) -> Mapping[str, int]:
        return self._real.backlog()

    def take(self, member: str, limit: int) -> Sequence[OpenQuestion]:
        return self._real.take(member, limit)

    def answered(self, member: str, answers: Sequence[QuestionAnswer]) -> None:
        self._real.answered(member, answers)

    def collect(self) -> int:
        return self._real.collect()


class FakeStore(Store):
    """A store whose hot path and whose questions have moods."""

    def __init__(self, real: Store) -> None:
        self.halves = FakeHalves(real.halves)
        self.ledgers, self.log, self.queues = real.ledgers, real.log, real.queues
        self.claims, self.groups, self.dead_letters = real.claims, real.groups, real.dead_letters
        self.schedule, self.doubts, self.rights = real.schedule, real.doubts, real.rights
        self.questions, self.leases = FakeQuestions(real.questions), real.leases
        self.registry, self.overview, self.work = real.registry, real.overview, real.work
        self.reservations, self.flows = real.reservations, real.flows
        self._real = real

    def close(self) -> None:
        self._real.close()


_numbers = count(1)


class NoHome:
    """What a broker without a home database says."""

    def cut(self, tables: Sequence[TableName] = ()) -> AbstractContextManager[Cut]:
        raise NotImplementedError

    def register(self, name: str, engine: Engine | AsyncEngine) -> None:
        raise NotImplementedError

    def enlist(self, name: str, participant: Enlistable | Participant) -> None:
        raise NotImplementedError

    def new_member(self) -> str:
        return "anna"


def bare_kernel(store: Store, announce: Announcer, member: str, **given: Any) -> Kernel:
    """Build a kernel from what a test gives; its other parts can't be used."""

    def missing(name: str, *_: Any, **__: Any) -> Any:
        raise ResourceUnknown(name, [])

    rest: dict[str, Any] = {"auto_create": False, "effects": {}, "tables": None, "rows": None, "jitter": lambda: 1.0}
    rest |= dict.fromkeys(("evidence", "participants", "services", "in_loop"), missing)
    return Kernel(store, announce=announce, member=member, **(rest | given))


def broker_on(store: Store, *observers: Observer, **resources: Engine) -> Broker:
    """Open a broker on any store; it runs no roles."""
    member = f"shop-{next(_numbers)}"
    kernel = bare_kernel(store, Announcer(observers), member, evidence=Resources({}, resources).find)
    return Broker(kernel, NoHome(), roles=False, answering=False, heartbeat=False, on_close=store.close)
