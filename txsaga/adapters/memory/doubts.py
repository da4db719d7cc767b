"""
Transactions in doubt: nobody has decided them and their time has come.

A plain half is closed by its prepare, so its age counts from there and it is put on the list once. A keyed
life counts from its last move and is listed while it is closed and undecided; an ACTIVE one is its owner's.
If no sweep runs, nothing is lost: the halves stay invisible until somebody decides them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from txsaga.adapters.memory.home import Home
from txsaga.adapters.memory.rows import Kept
from txsaga.model.lifecycle import TxState
from txsaga.model.records import Doubt

CLOSED = (TxState.ENDED, TxState.PREPARED)


class Listed(NamedTuple):
    """A place on the list: when to ask next, how often was asked, why it is out of checks."""

    due: datetime
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
            halves = {txid for txid in _undecided_halves(kept) - self._seen if kept.halves[txid][0].born <= now - age}
            lives = {txid for txid in _closed_lives(kept) if kept.lives[txid].touched <= now - age}
            found = (halves | lives) - self._listed.keys()
            self._seen |= halves
            self._listed |= dict.fromkeys(found, Listed(now))
            return len(found)

    def due(self, limit: int) -> Sequence[Doubt]:
        """Return what is listed, due and still undecided; what is due longest comes first."""
        with self._home.lock:
            now, kept = self._home.now(), self._home.kept
            undecided = _undecided_halves(kept) | _closed_lives(kept)
            due = sorted(
                (listed.due, txid)
                for txid, listed in self._listed.items()
                if listed.due <= now and listed.parked is None and txid in undecided
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


def _undecided_halves(kept: Kept) -> set[int]:
    return {txid for txid, halves in kept.halves.items() if txid not in kept.ops and not halves[0].keyed}


def _closed_lives(kept: Kept) -> set[int]:
    closed = (txid for txid, opened in kept.lives.items() if opened.life.state in CLOSED)
    return {txid for txid in closed if txid not in kept.ops}
