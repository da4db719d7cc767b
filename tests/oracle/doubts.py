"""
Transactions in doubt: nobody has decided them and their time has come.

A plain half is closed by its prepare, so its age counts from there and it is put on the list once. A keyed
life counts from the last step of its owner and is listed while it is undecided: a closed one soon, an ACTIVE one
when nobody has heard of its owner for a lease. What the owner does behind that takes it off the list again.
If no sweep runs, nothing is lost: the halves stay invisible until somebody decides them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from tests.oracle.halves import effective
from tests.oracle.home import Home
from tests.oracle.leases import MemoryLeases
from tests.oracle.names import Names
from tests.oracle.rows import Audit, Kept, Listed, Op
from txsaga.checkback.doubts_store import Doubts
from txsaga.checkback.profile import LEASE, CheckProfile
from txsaga.checkback.questions import Lead, PutOff, Remark, VerdictRecord
from txsaga.core.lifecycle import TxState
from txsaga.core.records import DecisionOutcome, Doubt

CLOSED = (TxState.SEALED, TxState.PREPARED)
UNDECIDED = (TxState.ACTIVE, *CLOSED)
ZERO = timedelta(0)
KEPT = 20
"""Remarks of one doubt; older ones go."""


class MemoryDoubts(Doubts):
    """The list of doubts."""

    def __init__(self, home: Home, names: Names, leases: MemoryLeases) -> None:
        self._home, self._names, self._leases = home, names, leases
        self._seen: set[int] = set()

    def waiting(self, age: timedelta) -> bool:
        """Tell whether a round would find anything."""
        with self._home.lock:
            kept = self._home.kept
            return bool(self._found(age)[1] or self.due(1) or kept.questions)

    def sweep(self, age: timedelta) -> int:
        """List what is older than `age` and undecided; return how many were not listed before."""
        with self._home.lock:
            kept, (halves, found) = self._home.kept, self._found(age)
            for txid in (kept.doubts.keys() & kept.ops.keys()) - kept.questions.keys():
                kept.unlist(txid)
            self._seen |= halves
            kept.doubts |= {txid: Listed(self._first(txid, age), kept.lives.get(txid)) for txid in found}
            return len(found)

    def due(self, limit: int) -> Sequence[Doubt]:
        """Return what is listed, due and still undecided; what is due longest comes first."""
        with self._home.lock:
            now, kept = self._home.now(), self._home.kept
            undecided = (_undecided_halves(kept) | _lives(kept, UNDECIDED)) - kept.questions.keys()
            due = sorted(
                (listed.due, txid)
                for txid, listed in kept.doubts.items()
                if listed.due <= now and listed.parked is None and txid in undecided and _holds(kept, txid, listed)
            )
            return [self.doubt(txid) for _, txid in due[:limit]]

    def of(self, txid: int) -> Doubt | None:
        """Return one transaction as a doubt, whether it is listed or not."""
        with self._home.lock:
            kept = self._home.kept
            return self.doubt(txid) if txid in kept.halves or txid in kept.lives else None

    def listed(self, txid: int) -> Listed | None:
        """Return a transaction's place on the list."""
        with self._home.lock:
            return self._home.kept.doubts.get(txid)

    def hold(self, held: Sequence[Doubt], lease: timedelta) -> None:
        """Ask about transactions that are being worked on no earlier than in `lease`."""
        with self._home.writing() as kept:
            for txid in (doubt.txid for doubt in held if doubt.txid not in kept.ops):
                opened, until = kept.lives.get(txid), self._home.now() + lease
                since = kept.halves[txid][0].born if opened is None else opened.touched
                listed = kept.doubts.get(txid, Listed(since + self._age(txid, ZERO)))
                kept.doubts[txid] = listed._replace(due=max(listed.due, until), opened=opened)

    def _is_held(self, txid: int) -> bool:
        with self._home.lock:
            listed = self._home.kept.doubts.get(txid)
            if listed is None or listed.parked is not None or listed.checks or listed.remarks:
                return False
            return listed.due > self._home.now() and _holds(self._home.kept, txid, listed)

    def rests(self, txid: int, age: timedelta) -> bool:
        """Tell whether nobody is to ask about a transaction yet."""
        with self._home.lock:
            kept, now = self._home.kept, self._home.now()
            opened = kept.lives.get(txid)
            since = kept.halves[txid][0].born if opened is None else opened.touched
            young = since + self._age(txid, age) > now or self._first(txid, age) > now
            return young or self._is_leased(txid) or self._is_held(txid)

    def settle(self, verdicts: Sequence[VerdictRecord], who: str) -> Sequence[DecisionOutcome]:
        """Decide plain halves with their audit rows."""
        with self._home.writing() as kept:
            plain = [each for each in verdicts if each.txid in kept.halves and each.txid not in kept.lives]
            won = [each for each in plain if each.txid not in kept.ops]
            for each in won:
                kept.decide(Op(each.txid, each.decision, from_check=True))
                kept.audits.append(Audit(each.txid, each.decision.name, who, each.why, self._home.now()))
                self.count(kept, kept.halves[each.txid][0].group, each.decision.name)
            for each in plain:
                kept.unlist(each.txid)
            return [DecisionOutcome(each.txid, kept.ops[each.txid].decision, each in won) for each in plain]

    def put_off(self, doubts: Sequence[PutOff], lead: Lead | None = None) -> bool:
        """Ask again later."""
        with self._home.writing() as kept:
            if lead is not None and not self._leases.holds(lead):
                return False
            for each in doubts:
                listed, answer = kept.doubts.get(each.txid), "UNKNOWN" if each.counted else "NO_ANSWER"
                if listed is not None:
                    now = self._home.now()
                    checks, resumed = listed.checks + each.counted, now if each.anew else listed.resumed
                    kept.doubts[each.txid] = listed._replace(due=now + each.by, checks=checks, resumed=resumed)
                    if each.why:
                        self.remark(kept, each.txid, "check-back", answer, each.why)
                        self.count(kept, self.doubt(each.txid).group, answer)
            return True

    def parked(self, txid: int) -> bool:
        """Tell whether a transaction is out of checks."""
        listed = self.listed(txid)
        return listed is not None and listed.parked is not None

    def remark(self, kept: Kept, txid: int, who: str, answer: str, why: str) -> None:
        """Keep what came of a check; what does not count replaces its equal, and pushes nothing out."""
        listed = kept.doubts.get(txid)
        if listed is not None:
            new, old = Remark(self._home.now(), who, answer, why[:500]), listed.remarks
            if answer == "NO_ANSWER" and old and old[-1]._replace(at=new.at) == new:
                old = old[:-1]
            kept.doubts[txid] = listed._replace(remarks=(*old, new)[-KEPT:])

    def count(self, kept: Kept, group: int, answer: str) -> None:
        """Count an answer of a group."""
        kept.tally = dict(Counter(kept.tally) + Counter([(group, answer)]))

    def _found(self, age: timedelta) -> tuple[set[int], set[int]]:
        """Return the halves that are old enough, and all that is not listed yet."""
        now, kept = self._home.now(), self._home.kept
        waiting = _undecided_halves(kept) - kept.scheduled.keys() - self._seen
        halves = {txid for txid in waiting if kept.halves[txid][0].born <= now - self._age(txid, age)}
        lives = {txid for txid in _lives(kept, UNDECIDED) if kept.lives[txid].touched <= now - self._age(txid, age)}
        lives -= {txid for txid, opened in kept.lives.items() if opened.life.voted}  # its coordinator decides it
        active = {txid: kept.lives[txid] for txid in _lives(kept, (TxState.ACTIVE,))}
        lives -= {txid for txid, each in active.items() if each.touched > now - (each.life.lease or LEASE)}
        return halves, (halves | lives) - {txid for txid, each in kept.doubts.items() if _holds(kept, txid, each)}

    def _age(self, txid: int, age: timedelta) -> timedelta:
        kept = self._home.kept
        opened = kept.lives.get(txid)
        group = kept.halves[txid][0].group if opened is None else opened.life.group
        said = self._names.group_by_id(group).checks
        return CheckProfile(min_age=age).of_group({"min_age": said["min_age"]}).min_age if "min_age" in said else age

    def _is_leased(self, txid: int) -> bool:
        opened = self._home.kept.lives.get(txid)
        if opened is None or opened.life.state is not TxState.ACTIVE or opened.life.lease is None:
            return False
        return opened.touched + opened.life.lease > self._home.now()

    def _new(self, txid: int, age: timedelta) -> Listed:
        return Listed(self._first(txid, age), self._home.kept.lives.get(txid))

    def _first(self, txid: int, age: timedelta) -> datetime:
        """Return when a half's own immunity is over; a life is due when it is listed."""
        kept = self._home.kept
        half = kept.halves[txid][0] if txid not in kept.lives else None
        if half is None or half.immunity is None:
            return self._home.now()
        return half.born + max(self._age(txid, age), timedelta(seconds=effective(half.immunity)))

    def doubt(self, txid: int) -> Doubt:
        """Return what deciding a transaction needs."""
        kept = self._home.kept
        opened, listed = kept.lives.get(txid), kept.doubts.get(txid)
        if opened is None:
            half = kept.halves[txid][0]
            group, evidence, born = half.group, half.evidence, half.born
        else:
            group, evidence, born = opened.life.group, opened.life.evidence, opened.born
        since = opened.touched if opened is not None and opened.life.run is not None else born
        return Doubt(
            txid=txid,
            group=group,
            token=self._home.token(group, txid),
            keyed=opened is not None,
            evidence=evidence,
            born=born,
            checks=listed.checks if listed else 0,
            age=self._home.now() - max(since, (listed and listed.resumed) or since),
            run=opened.life.run if opened else None,
            asked_last=listed.remarks[-1].who if listed and listed.remarks else None,
        )


def _undecided_halves(kept: Kept) -> set[int]:
    return {txid for txid, halves in kept.halves.items() if txid not in kept.ops and not halves[0].keyed}


def _lives(kept: Kept, states: Collection[TxState]) -> set[int]:
    found = (txid for txid, opened in kept.lives.items() if opened.life.state in states)
    return {txid for txid in found if txid not in kept.ops}


def _holds(kept: Kept, txid: int, listed: Listed) -> bool:
    """Tell whether the owner has done nothing since it was listed; out of checks is out of checks."""
    return listed.parked is not None or listed.opened is kept.lives.get(txid)  # each step puts another in its place
