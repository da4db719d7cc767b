"""
Transactions in doubt: nobody has decided them and their time has come.

A plain half is closed by its prepare, so its age counts from there and it is put on the list once. A keyed
life counts from the last step of its owner and is listed while it is undecided: a closed one soon, an ACTIVE one
when its owner has given it up. What the owner does behind that takes it off the list again.
If no sweep runs, nothing is lost: the halves stay invisible until somebody decides them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from txsaga.adapters.memory.home import Home
from txsaga.adapters.memory.rows import Kept, Opened
from txsaga.model.immunity import effective
from txsaga.model.lifecycle import TxState
from txsaga.model.records import Doubt
from txsaga.ports.log import ABANDONED

CLOSED = (TxState.ENDED, TxState.PREPARED)
UNDECIDED = (TxState.ACTIVE, *CLOSED)


class Listed(NamedTuple):
    """A place on the list: when to ask next, the life as its owner left it, how often was asked, why no more."""

    due: datetime
    opened: Opened | None = None
    checks: int = 0
    parked: str | None = None


class Doubts:
    """The list of doubts."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._listed: dict[int, Listed] = {}
        self._seen: set[int] = set()

    def sweep(self, age: timedelta) -> int:
        """List what is older than `age` and undecided; return how many were not listed before."""
        with self._home.lock:
            now, kept = self._home.now(), self._home.kept
            waiting = _undecided_halves(kept) - kept.scheduled.keys() - self._seen
            halves = {txid for txid in waiting if kept.halves[txid][0].born <= now - age}
            lives = {txid for txid in _lives(kept, CLOSED) if kept.lives[txid].touched <= now - age}
            given_up = now - max(age, ABANDONED)
            lives |= {txid for txid in _lives(kept, UNDECIDED) if kept.lives[txid].touched <= given_up}
            found = (halves | lives) - {txid for txid, listed in self._listed.items() if _holds(kept, txid, listed)}
            self._seen |= halves
            self._listed |= {txid: Listed(_due(kept, txid, now, age), kept.lives.get(txid)) for txid in found}
            return len(found)

    def due(self, limit: int) -> Sequence[Doubt]:
        """Return what is listed, due and still undecided; what is due longest comes first."""
        with self._home.lock:
            now, kept = self._home.now(), self._home.kept
            undecided = _undecided_halves(kept) | _lives(kept, UNDECIDED)
            due = sorted(
                (listed.due, txid)
                for txid, listed in self._listed.items()
                if listed.due <= now and listed.parked is None and txid in undecided and _holds(kept, txid, listed)
            )
            return [self._doubt(kept, txid) for _, txid in due[:limit]]

    def of(self, txid: int) -> Doubt | None:
        """Return one transaction as a doubt, whether it is listed or not."""
        with self._home.lock:
            kept = self._home.kept
            return self._doubt(kept, txid) if txid in kept.halves or txid in kept.lives else None

    def listed(self, txid: int) -> Listed | None:
        """Return a transaction's place on the list."""
        with self._home.lock:
            return self._listed.get(txid)

    def postpone(self, txid: int, by: timedelta, *, counted: bool) -> None:
        """Ask again later."""
        with self._home.lock:
            listed = self._listed.get(txid)
            if listed is not None:
                due, checks = self._home.now() + by, listed.checks + counted
                self._listed[txid] = listed._replace(due=due, checks=checks)

    def park(self, txid: int, why: str) -> None:
        """Ask no more."""
        with self._home.lock:
            if txid in self._listed:
                self._listed[txid] = self._listed[txid]._replace(parked=why)

    def parked(self, txid: int) -> bool:
        """Tell whether a transaction is out of checks."""
        with self._home.lock:
            return txid in self._listed and self._listed[txid].parked is not None

    def settled(self, txids: Sequence[int]) -> None:
        """Take transactions off the list."""
        with self._home.lock:
            for txid in txids:
                self._listed.pop(txid, None)

    def _doubt(self, kept: Kept, txid: int) -> Doubt:
        opened, listed = kept.lives.get(txid), self._listed.get(txid)
        if opened is None:
            half = kept.halves[txid][0]
            group, evidence, born = half.group, half.evidence, half.born
        else:
            group, evidence, born = opened.life.group, opened.life.evidence, opened.born
        return Doubt(
            txid=txid,
            group=group,
            token=self._home.token(group, txid),
            keyed=opened is not None,
            evidence=evidence,
            born=born,
            checks=listed.checks if listed else 0,
        )


def _due(kept: Kept, txid: int, now: datetime, age: timedelta) -> datetime:
    """When a half's own immunity is over; a life is due when it is listed."""
    half = kept.halves[txid][0] if txid not in kept.lives else None
    if half is None or half.immunity is None:
        return now
    return half.born + max(age, timedelta(seconds=effective(half.immunity)))


def _undecided_halves(kept: Kept) -> set[int]:
    return {txid for txid, halves in kept.halves.items() if txid not in kept.ops and not halves[0].keyed}


def _lives(kept: Kept, states: Collection[TxState]) -> set[int]:
    found = (txid for txid, opened in kept.lives.items() if opened.life.state in states)
    return {txid for txid in found if txid not in kept.ops}


def _holds(kept: Kept, txid: int, listed: Listed) -> bool:
    """Tell whether the owner has done nothing since it was listed; out of checks is out of checks."""
    return listed.parked is not None or listed.opened is kept.lives.get(txid)  # each step puts another in its place
