"""
An eye on the sessions that one transaction has in one database: one that waits for another waits for ever (R17).

A lane and the main work, two names of one database: each is a session of its own there. The database sees no deadlock,
because the session that holds the lock has nothing to do until the other goes on. Where two writers have no room at
all, the second is refused before it begins; elsewhere somebody looks, but only while there are two, and what is seen
waiting twice is interrupted. If nobody looks, such a statement waits as long as its session allows.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import NamedTuple, cast
from uuid import UUID

from txsaga.errors import TxSagaError
from txsaga.errors.flows import OwnLock
from txsaga.ports.participants import Crowded, Enlisted, Look, Participant

logger = logging.getLogger("txsaga")

EACH = 0.5
"""Seconds till the first look, and between two: what waits is refused well within two seconds."""


class Seat(NamedTuple):
    """One session of a transaction."""

    database: UUID
    name: str
    unit: bool  # of an auxiliary lane
    crowded: Crowded | None  # who can tell whether it waits
    number: int = 0

    def __str__(self) -> str:
        return f"lane {self.name!r}" if self.unit else f"the main work in {self.name!r}"


class Knots:
    """What of one transaction waits for the transaction itself."""

    def __init__(self, txid: int) -> None:
        self._txid, self._turn, self._over = txid, threading.Lock(), threading.Event()
        self._seats: dict[str, Seat] = {}
        self._found: dict[str, OwnLock] = {}
        self._thread: threading.Thread | None = None

    def require_room(self, key: str, participant: Participant, *, unit: bool) -> None:
        """Refuse a second writer where it could only wait for the first."""
        if participant.capabilities.one_writer:
            seat = Seat(participant.database, participant.name, unit, None)
            for other, holder in list(self._seats.items()):
                if other != key and holder.database == seat.database:
                    raise _own_lock(seat, holder)

    def enter(self, key: str, participant: Participant, session: Enlisted, *, unit: bool) -> None:
        """Take notice of a session that was opened."""
        if hasattr(participant, "number_of"):
            crowded = cast(Crowded, participant)
            seat = Seat(participant.database, participant.name, unit, crowded, crowded.number_of(session))
        elif participant.capabilities.one_writer:
            seat = Seat(participant.database, participant.name, unit, None)
        else:
            return
        with self._turn:
            self._seats[key] = seat
            if self._thread is None and self._shared():
                self._thread = threading.Thread(target=self._run, name="txsaga-knots", daemon=True)
                self._thread.start()

    def leave(self, keys: Iterable[str]) -> None:
        """Forget sessions that end, before others may get them from their pool."""
        with self._turn:
            for key in keys:
                self._seats.pop(key, None)

    def close(self) -> None:
        """Look no more."""
        self.leave(list(self._seats))
        self._over.set()

    def found(self, key: str) -> OwnLock | None:
        """Return why a statement of this session was interrupted, once."""
        return self._found.pop(key, None)

    def explain(self, error: BaseException, key: str | None = None) -> None:
        """Say so with an error that leaves another way: why this session was interrupted, or any."""
        for each in list(self._found) if key is None else [key]:
            if (found := self.found(each)) is not None:
                error.add_note(str(found))

    def _shared(self) -> Mapping[UUID, dict[str, Seat]]:
        """Return what sits with another in one database, where somebody can look."""
        databases: dict[UUID, dict[str, Seat]] = {}
        for key, seat in self._seats.items():
            if seat.crowded is not None:
                databases.setdefault(seat.database, {})[key] = seat
        return {database: seats for database, seats in databases.items() if len(seats) > 1}

    def _run(self) -> None:
        before: set[tuple[str, str]] = set()
        try:
            while not self._over.wait(EACH):
                with self._turn:
                    shared = self._shared()
                now: set[tuple[str, str]] = set()
                for seats in shared.values():
                    now |= self._look(seats, before)
                before = now
        except TxSagaError as reason:
            logger.warning("nobody can look whether transaction %s waits for itself: %s", self._txid, reason)

    def _look(self, seats: Mapping[str, Seat], before: set[tuple[str, str]]) -> set[tuple[str, str]]:
        """Return who waits for whom; who did before is interrupted."""
        keys = {seat.number: key for key, seat in seats.items()}
        crowded = next(iter(seats.values())).crowded
        assert crowded is not None
        with closing(crowded.look()) as look:
            pair = look.blocked(list(keys))
            if pair is None:
                return set()
            waiter, holder = (keys[number] for number in pair)
            if (waiter, holder) in before:
                self._interrupt(look, waiter, seats[waiter], seats[holder])
            return {(waiter, holder)}

    def _interrupt(self, look: Look, key: str, waiter: Seat, holder: Seat) -> None:
        with self._turn:  # nobody else may get the session meanwhile
            if self._seats.get(key) is waiter:
                self._found[key] = _own_lock(waiter, holder)
                look.interrupt(waiter.number)


def _own_lock(waiter: Seat, holder: Seat) -> OwnLock:
    remedy = "do both in one of them, or settle the lane before the other needs its rows"
    if not (waiter.unit or holder.unit):
        remedy = "these are names of one database: do both under one of them"
    return OwnLock(str(waiter), waiter.name, str(holder), whole="transaction", remedy=remedy)
