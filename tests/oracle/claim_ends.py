"""
What becomes of claimed messages in memory: done, come again, buried, or a transaction's.

Each works on rows that the caller may change. A message of a run is taken out of it first: if that were left out, its
neighbours would share what became of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from tests.oracle.rows import ClaimRow, Kept
from txsaga.consume.claim import Claim
from txsaga.consume.dead_letter import rolled_back
from txsaga.errors import ClaimLost

HISTORY = 20
"""Causes that are kept of a message: the first and the last ones."""


def held(kept: Kept, claim: Claim, now: datetime) -> ClaimRow | None:
    """Return the row of a claim that is not lost."""
    row = kept.claims.get((claim.group, claim.qid, claim.base, claim.size))
    return row if row is not None and row.is_held_by(claim, now) and row.open & claim.open else None


def lost(claim: Claim) -> ClaimLost:
    """Say that a claim is lost."""
    return ClaimLost(
        f"the claim on messages from {claim.base} on of queue {claim.qid} in group {claim.group!r} is over: "
        "they are done already, or it ran out and they come again: then make the invisible time longer, or extend it"
    )


def acknowledge(kept: Kept, claims: Sequence[Claim], now: datetime) -> Sequence[ClaimLost | None]:
    """Take open messages of claims off the group; tell of which claims not all were there before."""
    rows = [held(kept, claim, now) for claim in claims]
    for claim in claims:
        if (row := held(kept, claim, now)) is not None:
            kept.put(row._replace(open=row.open & ~claim.open))
    pairs = zip(claims, rows, strict=True)
    return [lost(claim) if row is None or claim.open & ~row.open else None for claim, row in pairs]


def taken_out(kept: Kept, claim: Claim, now: datetime) -> ClaimRow:
    """Take the one open message of a claim out of the rows, and return it as a row of its own."""
    row = held(kept, claim, now)
    if row is None:
        raise lost(claim)
    kept.put(row._replace(open=row.open & ~claim.open))
    return row if row.copy else row._replace(base=next(claim.offsets()), size=1, open=1)


def given_back(kept: Kept, claim: Claim, now: datetime) -> None:
    """Let open messages of a claim come again one by one, as if they had not been taken."""
    row = held(kept, claim, now)
    if row is not None:
        kept.put(row._replace(open=row.open & ~claim.open))
        free = row._replace(
            size=row.size if row.copy else 1, open=1, attempts=row.attempts - 1, until=now, receipt=None
        )
        kept.put(*(free._replace(base=row.base + at) for at in range(row.size) if row.open & claim.open & 1 << at))


def put_back(kept: Kept, row: ClaimRow, cause: str, delay: timedelta, now: datetime) -> None:
    """Let a message come again."""
    told = told_of(row, cause, now)
    kept.put(told._replace(until=now + delay, receipt=None, txid=None))


def told_of(row: ClaimRow, cause: str, now: datetime) -> ClaimRow:
    """Add to a message's history why its work failed."""
    entry = {"at": now.isoformat(), "member": row.member, "attempts": row.attempts, "cause": cause}
    kept = row.history if len(row.history) < HISTORY else (row.history[0], *row.history[2:])
    return row._replace(history=(*kept, entry))


def bind(kept: Kept, claim: Claim, txid: int, retry: timedelta, now: datetime) -> None:
    """Make the open messages of a claim a transaction's: only its decision ends what is claimed of them."""
    row = held(kept, claim, now)
    if row is None or claim.open & ~row.open:
        raise lost(claim)
    for offset in claim.offsets():
        out = taken_out(kept, claim.only(offset), now)
        kept.put(out._replace(txid=txid, retry=retry, until=None))


def decided(kept: Kept, txid: int, now: datetime, *, why: str | None) -> None:
    """Take the messages of a transaction off their groups; with a reason why not, let them come again."""
    for row in [row for row in kept.claims.values() if row.txid == txid]:
        if why is None:
            del kept.claims[row.place]
        else:
            put_back(kept, row, rolled_back(txid, why), row.retry, now)
