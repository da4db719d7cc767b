"""
Watch the sessions that one transaction has in one database: one that waits for another waits for ever (R17).

A lane and the main work, or two names of one database, have separate sessions there. The database sees no deadlock:
the session that holds the lock is idle until the other goes on. Where only one writer is possible, the second is
refused before it begins; elsewhere a thread polls while there are two, and interrupts one seen waiting twice. Without
it, such a statement waits as long as its session allows.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from types import TracebackType
from typing import NamedTuple, Self, cast
from uuid import UUID

from txsaga.core.failure import on_failure
from txsaga.errors import OwnLock, TxSagaError
from txsaga.resources.participant import Crowded, EnlistedBranch, FlowWaits, LockView, Participant

logger = logging.getLogger("txsaga")

EACH = 0.5
"""Seconds until the first poll, and between two: what waits is refused well within two seconds."""

_ROOM = nullcontext()
Pair = tuple[str, str]
"""The waiting session, and the one it waits for."""


class WatchedSession(NamedTuple):
    """One session of a transaction."""

    database: UUID
    name: str
    unit: bool  # of an auxiliary lane
    crowded: Crowded | None = None  # the participant, if it can be polled
    session: EnlistedBranch | None = None

    def __str__(self) -> str:
        return f"lane {self.name!r}" if self.unit else f"the main work in {self.name!r}"

    @property
    def number(self) -> int | None:
        """The server's number of the session, while it is this transaction's."""
        return self.crowded.number_of(self.session) if self.crowded and self.session else None


class SelfDeadlockDetector:
    """Detects sessions of one transaction that wait for the transaction itself."""

    def __init__(self, txid: int) -> None:
        self._txid, self._turn = txid, threading.Lock()
        self._over: threading.Event | None = None  # ends the polling
        self._closed = False
        self._seats: dict[str, WatchedSession] = {}
        self._found: dict[str, OwnLock] = {}
        self._thread: threading.Thread | None = None

    def room(self, key: str, participant: Participant, *, unit: bool) -> AbstractContextManager[None]:
        """Reserve a database that allows one writer; refuse a session that could only wait for another."""
        return self._seated(key, participant, unit) if participant.capabilities.one_writer else _ROOM

    @contextmanager
    def _seated(self, key: str, participant: Participant, unit: bool) -> Iterator[None]:
        seat = WatchedSession(participant.database, participant.name, unit)
        with self._turn:
            for holder in self._seats.values():
                if holder.database == seat.database:
                    raise _own_lock(seat, holder)
            self._seats[key] = seat
        with on_failure(self.leave, [key]):
            yield

    def enter(self, key: str, participant: Participant, session: EnlistedBranch, *, unit: bool) -> None:
        """Register an opened session, if it can be polled."""
        if not hasattr(participant, "number_of"):
            return
        seat = WatchedSession(participant.database, participant.name, unit, cast(Crowded, participant), session)
        with self._turn:
            self._seats[key] = seat
            if (
                self._thread is None
                and not self._closed
                and any(other.database == seat.database for each, other in self._seats.items() if each != key)
            ):
                over = threading.Event()
                thread = threading.Thread(target=self._run, args=(over,), name="txsaga-knots", daemon=True)
                try:
                    thread.start()
                except RuntimeError as full:  # no thread available: it waits as long as its session allows
                    logger.warning("nobody looks whether transaction %s waits for itself: %s", self._txid, full)
                else:
                    self._thread, self._over = thread, over

    def leave(self, keys: Iterable[str]) -> None:
        """Forget sessions that end, before their pool may give them to others."""
        if not self._seats:
            return
        with self._turn:
            for key in keys:
                self._seats.pop(key, None)
                self._found.pop(key, None)

    def close(self) -> None:
        """Stop polling."""
        with self._turn:
            self._closed = True
            self._seats.clear()
            self._found.clear()
        if self._over is not None:
            self._over.set()

    def found(self, key: str, error: BaseException | None = None) -> OwnLock | None:
        """Return, once, why a statement of this session was interrupted; with an error, only if that caused it."""
        with self._turn:
            seat = self._seats.get(key)
            if error is not None and not (seat and seat.crowded and _came_of(seat.crowded, error)):
                return None
            return self._found.pop(key, None)

    def _shared(self) -> dict[UUID, dict[str, WatchedSession]]:
        """Return the sessions that share a database and can be polled."""
        databases: dict[UUID, dict[str, WatchedSession]] = {}
        for key, seat in self._seats.items():
            if seat.number is not None:
                databases.setdefault(seat.database, {})[key] = seat
        return {database: seats for database, seats in databases.items() if len(seats) > 1}

    def _run(self, over: threading.Event) -> None:
        before: set[Pair] = set()
        looks: dict[str, LockView] = {}
        told = False
        while not over.wait(EACH):
            now: set[Pair] = set()
            try:
                with self._turn:
                    shared = self._shared()
                for seats in shared.values():
                    now |= self._look(looks, seats, before)
            except Exception as failure:  # noqa: BLE001  # the next poll may succeed
                _close(looks)
                if not told:
                    logger.warning("whether transaction %s waits for itself can't be seen: %s", self._txid, failure)
                told = True
            before = now
        _close(looks)

    def _look(self, looks: dict[str, LockView], seats: Mapping[str, WatchedSession], before: set[Pair]) -> set[Pair]:
        """Return which session waits for which; one that did before is interrupted."""
        keys = {number: key for key, seat in seats.items() if (number := seat.number) is not None}
        look = _look_of(looks, next(iter(seats.values())))
        pair = look.blocked(list(keys)) if len(keys) > 1 else None
        if pair is None:
            return set()
        waiter, holder = (keys[number] for number in pair)
        if (waiter, holder) in before:
            self._interrupt(_look_of(looks, seats[waiter]), (waiter, holder), seats)
        return {(waiter, holder)}

    def _interrupt(self, look: LockView, pair: Pair, seats: Mapping[str, WatchedSession]) -> None:
        waiter, holder = (seats[key] for key in pair)
        with self._turn:  # no other transaction may get the sessions meanwhile
            if any(self._seats.get(key) is not seats[key] for key in pair):
                return
            waits, holds, why = waiter.number, holder.number, _own_lock(waiter, holder)
            if waits is not None and holds is not None and look.interrupt(waits, holds):
                self._found[pair[0]] = why
                logger.warning("transaction %s: a statement is cancelled, because %s", self._txid, why)


def _look_of(looks: dict[str, LockView], seat: WatchedSession) -> LockView:
    if seat.name not in looks:
        assert seat.crowded is not None
        looks[seat.name] = seat.crowded.look()
    return looks[seat.name]


def _close(looks: dict[str, LockView]) -> None:
    while looks:
        with suppress(Exception):
            looks.popitem()[1].close()


def _came_of(crowded: Crowded, error: BaseException | None) -> bool:
    """Return whether an error came from a cancelled statement."""
    while error is not None:
        if crowded.is_cancelled(error):
            return True
        error = error.__cause__
    return False


def _own_lock(waiter: WatchedSession, holder: WatchedSession) -> OwnLock:
    remedy = "do both in one of them, or settle the lane before the other needs its rows"
    if not (waiter.unit or holder.unit):
        remedy = "these are names of one database: do both under one of them"
    return OwnLock(str(waiter), waiter.name, str(holder), whole="transaction", remedy=remedy)


FIRST = 0.5
"""Seconds until the first poll; then `EACH`: a step is refused well within two seconds."""


class StepDeadlockDetector:
    """Polls whether a session waits for its own flow, and ends the waiting."""

    def __init__(self, waits: FlowWaits | None) -> None:
        self._waits, self._over = waits, threading.Event()
        self._thread: threading.Thread | None = None
        self.found: str | None = None

    def __enter__(self) -> Self:
        if self._waits is not None:
            self._thread = threading.Thread(target=self._run, args=(self._waits,), name="txsaga-watch", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, waits: FlowWaits) -> None:
        pause = FIRST
        try:
            while not self._over.wait(pause):
                pause = EACH
                self.found = waits.own_blocker()
                if self.found is not None:
                    waits.interrupt()
                    return
        except TxSagaError as reason:
            logger.warning("nobody can look whether a step waits for its own flow: %s", reason)
        finally:
            waits.close()
