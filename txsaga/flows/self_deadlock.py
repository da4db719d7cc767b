"""
Detects a session that waits for its own transaction: it would wait for ever (R17).

A lane and the main work, or two names of one database, have separate sessions there, and a step or a journal may need a
row that its flow holds prepared. The database sees no deadlock: the session that holds the lock is idle, or gone, until
the other goes on. Where only one writer is possible, the second is refused before it begins. Elsewhere a thread looks,
while there is something to wait for, and interrupts a statement that waits for held work, or was seen twice waiting for
another session. Without it, such a statement waits as long as its session allows.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from types import MappingProxyType
from typing import NamedTuple, cast
from uuid import UUID

from txsaga.core.failure import on_failure
from txsaga.errors import OwnLock
from txsaga.flows.branch import BranchId
from txsaga.flows.step import Step
from txsaga.resources.participant import EnlistedBranch, LockView, LockWait, Participant, ShowsLocks

logger = logging.getLogger("txsaga")

EACH = 0.5
"""Seconds until the first look, and between two: what waits is refused well within two seconds."""

_ROOM = nullcontext()
Held = Mapping[str, str]
"""What people call held work, by its server's name for it."""
NOTHING: Held = MappingProxyType({})


class WatchedSession(NamedTuple):
    """One session of a transaction."""

    database: UUID
    participant: Participant
    unit: bool  # of an auxiliary lane
    session: EnlistedBranch | None = None  # if its lock waits can be seen
    held: Held = NOTHING  # what its flow holds prepared in the same database
    who: str = ""  # what may wait for that

    def __str__(self) -> str:
        name = self.participant.name
        return f"lane {name!r}" if self.unit else f"the main work in {name!r}"

    @property
    def number(self) -> int | None:
        """The server's number of the session, while it is this transaction's."""
        return getattr(self.session, "number", None)


Pair = tuple[str, str | int]
"""The waiting session, and the session or held work that it waits for."""
Sessions = Mapping[str, WatchedSession]


class SelfDeadlockDetector:
    """Detects sessions of one transaction that wait for the transaction itself."""

    def __init__(self, transaction: int | str) -> None:
        self._transaction, self._turn = transaction, threading.Lock()
        self._over: threading.Event | None = None  # ends the thread
        self._closed = False
        self._sessions: dict[str, WatchedSession] = {}
        self._found: dict[str, OwnLock] = {}

    def room(self, key: str, participant: Participant, *, unit: bool) -> AbstractContextManager[None]:
        """Reserve a database that allows one writer; refuse a session that could only wait for another."""
        return self._reserved(key, participant, unit) if participant.capabilities.one_writer else _ROOM

    @contextmanager
    def _reserved(self, key: str, participant: Participant, unit: bool) -> Iterator[None]:
        entering = WatchedSession(participant.database, participant, unit)
        with self._turn:
            for holder in self._sessions.values():
                if holder.database == entering.database:
                    raise _waits_for_session(entering, holder)
            self._sessions[key] = entering
        with on_failure(self.leave, [key]):
            yield

    def enter(
        self,
        key: str,
        participant: Participant,
        session: EnlistedBranch,
        *,
        unit: bool = False,
        held: Held = NOTHING,
        who: str = "the journal",
    ) -> None:
        """Watch an opened session, if its participant shows lock waits and there is something to wait for."""
        if not hasattr(participant, "look"):
            return
        entering = WatchedSession(participant.database, participant, unit, session, held, who)
        with self._turn:
            self._sessions[key] = entering
            shared = any(each.database == entering.database for each in self._sessions.values() if each is not entering)
            if (held or shared) and self._over is None and not self._closed:
                self._start()

    def _start(self) -> None:
        over = threading.Event()
        thread = threading.Thread(target=self._run, args=(over,), name="txsaga-self-deadlocks", daemon=True)
        try:
            thread.start()
        except RuntimeError as full:  # no thread available: it waits as long as its session allows
            logger.warning("transaction %s is not checked for deadlocks with itself: %s", self._transaction, full)
        else:
            self._over = over

    def leave(self, keys: Iterable[str]) -> None:
        """Forget sessions that end, before their pool may give them to others."""
        if not self._sessions:
            return
        with self._turn:
            for key in keys:
                self._sessions.pop(key, None)
                self._found.pop(key, None)

    def close(self) -> None:
        """Stop looking; no statement is interrupted any more."""
        with self._turn:
            self._closed = True
            self._sessions.clear()
        if self._over is not None:
            self._over.set()

    def found(self, key: str, error: BaseException | None = None) -> OwnLock | None:
        """Return, once, why a statement of this session was interrupted; with an error, only if that caused it."""
        with self._turn:
            watched = self._sessions.get(key)
            if error is not None and not (watched and watched.session and _came_of(watched.participant, error)):
                return None
            return self._found.pop(key, None)

    def _run(self, over: threading.Event) -> None:
        before: set[Pair] = set()
        views: dict[str, LockView] = {}
        failed = False
        while not over.wait(EACH):
            now: set[Pair] = set()
            try:
                for sessions in self._watched():
                    now |= self._look(views, sessions, before)
            except Exception as failure:  # noqa: BLE001  # the next look may succeed
                _close(views)
                if not failed:
                    logger.warning(
                        "the check whether transaction %s deadlocks with itself failed: %s", self._transaction, failure
                    )
                failed = True
            before = now
        _close(views)

    def _watched(self) -> Iterable[Sessions]:
        """Return, for each database, the sessions that have something to wait for."""
        databases: dict[UUID, dict[str, WatchedSession]] = {}
        with self._turn:
            for key, watched in self._sessions.items():
                if watched.number is not None:
                    databases.setdefault(watched.database, {})[key] = watched
        return [each for each in databases.values() if len(each) > 1 or any(one.held for one in each.values())]

    def _look(self, views: dict[str, LockView], sessions: Sessions, before: set[Pair]) -> set[Pair]:
        """Return what waits for what; interrupt what waits for held work, or did wait before."""
        keys = {number: key for key, each in sessions.items() if (number := each.number) is not None}
        held = {name: what for each in sessions.values() for name, what in each.held.items()}
        wait = _view(views, next(iter(sessions.values()))).blocked(list(keys), list(held))
        if wait is None:
            return set()
        waiter = keys[wait.waiter]
        if isinstance(wait.holder, str):
            why = OwnLock(sessions[waiter].who, sessions[waiter].participant.name, held[wait.holder])
            self._interrupt(views, wait, {waiter: sessions[waiter]}, why)
            return set()
        pair = waiter, keys[wait.holder]
        if pair in before:
            both = {key: sessions[key] for key in pair}
            self._interrupt(views, wait, both, _waits_for_session(*both.values()))
        return {pair}

    def _interrupt(self, views: dict[str, LockView], wait: LockWait, parties: Sessions, why: OwnLock) -> None:
        """Cancel a waiting statement; the waiting session is the first of the parties."""
        waiter, watched = next(iter(parties.items()))
        view = _view(views, watched)
        with self._turn:  # no other transaction may get the sessions meanwhile
            if any(self._sessions.get(key) is not each or each.number is None for key, each in parties.items()):
                return
            if view.interrupt(wait):
                self._found[waiter] = why
                logger.warning("transaction %s: a statement is cancelled because %s", self._transaction, why)


def held_by(transaction: str, steps: Iterable[Step]) -> Held:
    """Return what steps of a flow hold prepared in one database."""
    return {
        step.mark or BranchId(transaction, step.branch or 0, step.attempt).gid: f"step {step.name!r}" for step in steps
    }


def _view(views: dict[str, LockView], watched: WatchedSession) -> LockView:
    name = watched.participant.name
    if name not in views:
        views[name] = cast(ShowsLocks, watched.participant).look()
    return views[name]


def _close(views: dict[str, LockView]) -> None:
    while views:
        with suppress(Exception):
            views.popitem()[1].close()


def _came_of(participant: Participant, error: BaseException | None) -> bool:
    """Return whether an error came from a cancelled statement."""
    while error is not None:
        if cast(ShowsLocks, participant).is_cancelled(error):
            return True
        error = error.__cause__
    return False


def _waits_for_session(waiter: WatchedSession, holder: WatchedSession) -> OwnLock:
    remedy = "do both in one of them, or settle the lane before the other needs its rows"
    if not (waiter.unit or holder.unit):
        remedy = "these are names of one database: do both under one of them"
    return OwnLock(str(waiter), waiter.participant.name, str(holder), whole="transaction", remedy=remedy)
