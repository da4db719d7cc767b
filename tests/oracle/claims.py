"""
The work style in memory: claims beside the cursors, each call one step for everybody else.

What a ledger block may change lies in `Kept`. If claims lay elsewhere, a block that raises would leave a message
bound to a transaction that never was.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import count

from tests.oracle import claim_ends
from tests.oracle.groups import MemoryGroups
from tests.oracle.home import Home
from tests.oracle.log import MemoryLog
from tests.oracle.rows import ClaimRow, Kept, Letter, Op, StoredHalf
from txsaga.consume.claim import MOST, Burial, Claim, ClaimHold, Unread
from txsaga.consume.claims_store import Claims
from txsaga.core.decision import Decision
from txsaga.core.records import NOBODY, Row
from txsaga.errors import TxSagaError


class MemoryClaims(Claims):
    """Claims of one store."""

    def __init__(self, home: Home, log: MemoryLog, groups: MemoryGroups) -> None:
        self._home, self._log, self._groups = home, log, groups
        self._receipts = count(1)

    def take_new(self, group: str, qids: Sequence[int], after: int, limit: int, hold: ClaimHold) -> Claim | None:
        """Claim messages that nobody has taken yet."""
        with self._home.writing() as kept:
            there = qids if self._groups.may_work(group, ordered=False) else []
            for qid, start, head in self._behind(kept, group, there, after):
                size = min(head - start, limit, MOST)
                self._move(kept, group, qid, start + size)
                taken = self._take_row(ClaimRow(group, qid, start, size, (1 << size) - 1, 0, None), hold)
                kept.put(taken)
                return taken.claimed()
        return None

    def take_due(self, group: str, qids: Sequence[int], limit: int, hold: ClaimHold) -> Sequence[Claim]:
        """Claim messages whose time has come."""
        with self._home.writing() as kept:
            due = self._due(kept, group, qids)[:limit]
            if due and due[0].open.bit_count() > 1:
                return [self._alone(kept, due[0], hold)]
            chosen = due[:1] if due and due[0].attempts else [row for row in due if not row.attempts]
            taken = [self._take_row(row, hold) for row in chosen]
            kept.put(*taken)
            return sorted(row.claimed() for row in taken)

    def unread(self, group: str, qids: Sequence[int], after: int, limit: int, window: int) -> Unread | None:
        """Find messages to be lined up."""
        with self._home.lock:
            kept = self._home.kept
            there = qids if self._groups.may_work(group, ordered=True) else []
            for qid, start, head in self._behind(kept, group, there, after):
                if sum((row.group, row.qid) == (group, qid) for row in kept.claims.values()) < window:
                    return Unread(qid, start, min(head, start + limit))
        return None

    def line_up(self, group: str, found: Unread, keys: Sequence[int | None]) -> bool:
        """Put unread messages into claims that nobody holds, each with its key."""
        with self._home.writing() as kept:
            cursor = kept.cursors.get((group, found.qid))
            if cursor is None or cursor.offset != found.start:
                return False
            self._move(kept, group, found.qid, found.end)
            now = self._home.now()
            kept.put(*(ClaimRow(group, found.qid, at, 1, 1, 0, now, key=k) for at, k in enumerate(keys, found.start)))
            return True

    def ack(self, claims: Sequence[Claim]) -> Sequence[TxSagaError | None]:
        """Take messages off the group."""
        with self._home.writing() as kept:
            return claim_ends.acknowledge(kept, claims, self._home.now())

    def extend(self, claim: Claim, by: timedelta) -> None:
        """Hold a claim for so long from now on."""
        with self._home.writing() as kept:
            now = self._home.now()
            row = claim_ends.held(kept, claim, now)
            if row is None:
                raise claim_ends.lost(claim)
            kept.put(row._replace(until=now + by))

    def extend_alone(self, claim: Claim, by: timedelta) -> Claim:
        """Hold one message for so long from now on, apart from the others of its run."""
        with self._home.writing() as kept:
            now = self._home.now()
            row = claim_ends.taken_out(kept, claim, now)._replace(until=now + by, receipt=next(self._receipts))
            kept.put(row)
            return claim._replace(base=row.base, size=row.size, open=row.open, receipt=row.receipt or 0)

    def put_back(self, claim: Claim, delay: timedelta, cause: str) -> None:
        """Let a message come again."""
        with self._home.writing() as kept:
            now = self._home.now()
            claim_ends.put_back(kept, claim_ends.taken_out(kept, claim, now), cause, delay, now)

    def give_back(self, claim: Claim) -> None:
        """Let messages come again at once, uncounted."""
        with self._home.writing() as kept:
            claim_ends.given_back(kept, claim, self._home.now())

    def bury(self, claim: Claim, burial: Burial) -> None:
        """Take a message off the group, into a backout queue or to the dead letters."""
        with self._home.writing() as kept:
            row = claim_ends.taken_out(kept, claim, self._home.now())
            row = row._replace(attempts=row.attempts - burial.uncounted)
            if burial.backout is None:
                self._lay_down(kept, row, burial)
            else:
                self._back_out(kept, burial.backout, burial.copy.body)

    def drop(self, claim: Claim) -> None:
        """Take a message off the group for good."""
        with self._home.writing() as kept:
            claim_ends.taken_out(kept, claim, self._home.now())

    def _behind(self, kept: Kept, group: str, qids: Sequence[int], after: int) -> list[tuple[int, int, int]]:
        """Return queues with unread messages by turns: number, where the group stands, head."""
        cursors = [(qid, kept.cursors.get((group, qid))) for qid in sorted(qids, key=lambda qid: (qid <= after, qid))]
        places = [(qid, cursor.offset, self._log.bounds([qid])[qid].head) for qid, cursor in cursors if cursor]
        return [place for place in places if place[1] < place[2]]

    def _due(self, kept: Kept, group: str, qids: Sequence[int]) -> list[ClaimRow]:
        """Return what may be taken, what is due longest first; of those with one key only the first in line."""
        now, first = self._home.now(), dict[tuple[int, int], int]()
        mine = [row for row in kept.claims.values() if row.group == group and row.qid in qids]
        for row in mine:
            if row.key is not None:
                line = (row.qid, row.key)
                first[line] = min(row.base, first.get(line, row.base))
        due = [row for row in mine if row.is_due(now) and (row.key is None or first[row.qid, row.key] == row.base)]
        return sorted(due, key=lambda row: (row.until, row.qid, row.base))

    def _take_row(self, row: ClaimRow, hold: ClaimHold) -> ClaimRow:
        until, receipt = self._home.now() + timedelta(seconds=hold.seconds), next(self._receipts)
        return row._replace(attempts=row.attempts + 1, until=until, receipt=receipt, member=hold.member)

    def _alone(self, kept: Kept, run: ClaimRow, hold: ClaimHold) -> Claim:
        """Take the first message out of a run that ran out."""
        lowest = run.open & -run.open
        kept.put(run._replace(open=run.open & ~lowest))
        taken = self._take_row(run._replace(base=run.base + lowest.bit_length() - 1, size=1, open=1), hold)
        kept.put(taken)
        return taken.claimed()

    def _lay_down(self, kept: Kept, row: ClaimRow, burial: Burial) -> None:
        now, before = self._home.now(), kept.letter_of(row)
        id = self._home.next_letter() if before is None else before.id
        kept.letters[id] = Letter(id, now, claim_ends.told_of(row, burial.cause, now), burial)

    def _back_out(self, kept: Kept, qid: int, body: bytes) -> None:
        txid = self._home.next_txid()
        kept.lie(StoredHalf(txid, 0, 0, NOBODY, Row(qid, 0, 1, body), self._home.now()))
        kept.decide(Op(txid, Decision.COMMIT, False))

    @staticmethod
    def _move(kept: Kept, group: str, qid: int, offset: int) -> None:
        kept.cursors[group, qid] = kept.cursors[group, qid]._replace(offset=offset)
