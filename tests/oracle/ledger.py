"""
Keyed transactions in memory: a block works on a copy of the rows and puts it in place at its end.

The lock is held all the while, so a life that a block has read is locked without further ado: a decision
waits for the writers before it, a writer behind it sees it (R3).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from tests.oracle import claim_ends, step_moves
from tests.oracle.flows import MemoryFlowLedger
from tests.oracle.home import Home
from tests.oracle.names import Names
from tests.oracle.rows import Audit, BranchRow, Kept, Listed, Op, Opened, StoredHalf
from tests.oracle.tables import MemoryTables
from txsaga.consume.claim import Claim
from txsaga.consume.dead_letter import TAKEN_OVER
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TRANSACTION, TxEvent, TxState
from txsaga.core.records import FRAMES, Intent, LateSlot, Row, TxRecord
from txsaga.errors import (
    LeaseLost,
    StoreError,
    Superseded,
    TransactionClosed,
    TransactionsRejected,
    UnknownTransaction,
)
from txsaga.flows.ballot import Ballot, CastVote, Polled, require_same
from txsaga.flows.branch import HEURISTIC, NOTHING_DONE, BranchState, Vote
from txsaga.flows.requests import VOTED, BranchVote
from txsaga.flows.step import StepEvent
from txsaga.messages.ledger_store import Ledger, Ledgers


class MemoryLedger(MemoryTables, Ledger):
    """The rows of keyed transactions inside one open block."""

    def __init__(self, home: Home, names: Names, kept: Kept) -> None:
        self._home = home
        self._names = names
        self._kept = kept
        self.flows = MemoryFlowLedger(home, kept, self.touch)
        self._decided_before = home.kept.ops  # the block's own decision closes nothing to the block itself

    def latest(self, group: int, key: str, *, before: int | None = None, lock: bool = True) -> TxRecord | None:
        """Return the newest life of a key, or the newest before an epoch."""
        lives = [
            opened.life for opened in self._kept.lives.values() if (opened.life.group, opened.life.key) == (group, key)
        ]
        earlier = [life for life in lives if before is None or life.epoch < before]
        return max(earlier, key=lambda life: life.epoch, default=None)

    def sees(self, group: int | None = None) -> bool:
        """Show everything."""
        return True

    def lock(self, txid: int) -> TxRecord | None:
        """Return a life, locked."""
        opened = self._kept.lives.get(txid)
        return opened.life if opened else None

    share = lock

    def create(
        self,
        group: int,
        key: str | None,
        epoch: int,
        run: str | None = None,
        coordinator: UUID | None = None,
        lease: timedelta | None = None,
    ) -> TxRecord | None:
        """Open a life, unless that epoch of the key is open."""
        taken = {(opened.life.group, opened.life.key, opened.life.epoch) for opened in self._kept.lives.values()}
        if key is not None and (group, key, epoch) in taken:
            return None
        self._refuse_if_rejecting()
        self._names.group_by_id(group)
        txid = self._home.next_txid()
        life = TxRecord(
            txid=txid,
            group=group,
            token=self._home.token(group, txid),
            key=key,
            epoch=epoch,
            owner=1,
            state=TxState.ACTIVE,
            run=run,
            coordinator=coordinator,
            lease=lease,
        )
        return self._put(life)

    def release(self, txid: int) -> None:
        """Let a life be nobody's branch any more."""
        self._put(replace(self._life(txid), coordinator=None))

    def take_over(self, txid: int) -> TxRecord:
        """Raise the owner of an ACTIVE life."""
        self._refuse_if_rejecting()
        life = self._life(txid)
        if life.state is not TxState.ACTIVE:
            raise TransactionClosed(f"transaction {txid} is {life.state}; nobody can take it over")
        self._kept.slots.pop(txid, None)
        for won in [each for each in self._kept.winners if each[0] == txid and each[1] >= FRAMES]:
            self._kept.winners[won] = 0  # nobody's
        for place, intent in list(self._kept.intents.items()):
            if intent.txid == txid:
                del self._kept.intents[place]
        claim_ends.decided(self._kept, txid, self._home.now(), why=TAKEN_OVER)
        return self._put(replace(life, owner=life.owner + 1))

    def touch(self, txid: int) -> None:
        """Show that the owner of a life is alive: what is listed of it is older than that."""
        self._put(self._life(txid))

    def move(self, txid: int, event: TxEvent, *, evidence: int | None = None) -> None:
        """Move a life by its table."""
        life = self._life(txid)
        state = TRANSACTION.after(life.state, event)
        self._put(replace(life, state=state, evidence=life.evidence if evidence is None else evidence))

    def add(self, life: TxRecord, part: int, rows: Sequence[Row]) -> None:
        """Add halves under the life's owner."""
        self._refuse_decided(life.txid)
        if self._life(life.txid).owner != life.owner:
            raise Superseded(life.txid)
        self._names.require_topics(row.qid for row in rows)
        wrong = self._names.wrong_rows(rows)
        if wrong is not None:
            raise wrong
        known = {half.place for half in self._kept.halves.get(life.txid, ())}
        for row in rows:
            half = StoredHalf(life.txid, part, life.owner, life.group, row, self._home.now(), True, life.evidence)
            if half.place in known:
                raise StoreError(f"chunk {row.chunk} of transaction {life.txid} lies there already")
            self._kept.lie(half)

    def win(self, txid: int, part: int, attempt: int) -> None:
        """Name the attempt that counts."""
        self._refuse_decided(txid)
        self._kept.winners[txid, part] = attempt

    def copy(self, txid: int, life: TxRecord) -> int:
        """Add what counts of another transaction's halves."""
        halves = [half for half in self._kept.halves.get(txid, ()) if self._kept.counts(half)]
        for part in dict.fromkeys(half.part for half in halves):
            self.add(life, part, [half.row for half in halves if half.part == part])
            self.win(life.txid, part, life.owner)
        return len(halves)

    def tie(self, txid: int, replay: int) -> bool:
        """Tie a transaction to the one that replays it."""
        return self._kept.replays.setdefault(txid, replay) == replay

    def replay_of(self, txid: int) -> int | None:
        """Return the transaction that replays this one."""
        return self._kept.replays.get(txid)

    def name(self, life: TxRecord, resources: Sequence[int], *, aux: bool = False) -> Sequence[int]:
        """Name a branch for each resource."""
        branches = self._kept.branches
        known = {place[1]: row for place, row in branches.items() if place[0] == life.txid}
        numbers = {} if aux else {row.resource: number for number, row in known.items() if not row.aux}
        for resource in resources:
            number = numbers.setdefault(resource, max([0, *known, *numbers.values()]) + 1)
            row = BranchRow(resource, BranchState.ACTIVE, self._home.now(), aux=aux)
            branches.setdefault((life.txid, number, life.owner), row)
        return [numbers[resource] for resource in resources]

    def record_votes(self, txid: int, votes: Sequence[BranchVote]) -> None:
        """Note what branches voted."""
        for number, attempt, vote in votes:
            row, why = self._kept.branches[txid, number, attempt], NOTHING_DONE if vote is Vote.READ_ONLY else ""
            self._kept.branches[txid, number, attempt] = row._replace(state=VOTED[vote], at=self._home.now(), why=why)

    def call(self, txid: int, ballot: Ballot) -> None:
        """Call a ballot; the same once more changes nothing."""
        poll = self._kept.ballots.setdefault((txid, ballot.name), Polled(ballot=ballot))
        require_same(poll.ballot, ballot)

    def cast(self, txid: int, ballot: str, cast: CastVote) -> bool:
        """Cast a vote."""
        poll = self._kept.ballots[txid, ballot]
        if any(known.voter == cast.voter for known in poll.casts):
            return False
        said = replace(cast, at=self._home.now())
        self._kept.ballots[txid, ballot] = replace(poll, casts=(*poll.casts, said))
        return True

    def ballots(self, txid: int) -> Sequence[Polled]:
        """Return the ballots of a transaction."""
        return [
            poll for place, poll in sorted(self._kept.ballots.items(), key=lambda kept: kept[0]) if place[0] == txid
        ]

    def forget(self, txid: int, number: int, attempt: int) -> bool:
        """Forget a branch that stands against its decision."""
        row = self._kept.branches.get((txid, number, attempt))
        if row is None or row.state not in HEURISTIC:
            return False
        forgotten = row._replace(state=BranchState.FORGOTTEN, at=self._home.now())
        self._kept.branches[txid, number, attempt] = forgotten
        return True

    def has_open_saga(self, txid: int) -> bool:
        """Tell whether something of a transaction is still to be undone."""
        return txid in self._kept.sagas

    def move_step(self, txid: int, number: int, event: StepEvent, why: str) -> bool:
        """Move a step by hand."""
        return step_moves.by_hand(self._kept, (txid, number), event, why, self._home.now())

    def reserve(self, slot: LateSlot) -> None:
        """Keep a place for a late body."""
        self._refuse_decided(slot.txid)
        if any(known.slot == slot.slot for known in self.slots(slot.txid)):
            raise StoreError(f"slot {slot.slot} of transaction {slot.txid} is reserved already")
        self._kept.slots[slot.txid] = (*self._kept.slots.get(slot.txid, ()), slot)

    def slots(self, txid: int) -> Sequence[LateSlot]:
        """Return the places kept for late bodies."""
        return sorted(self._kept.slots.get(txid, ()), key=lambda slot: slot.slot)

    def intend(self, intent: Intent, member: str) -> None:
        """Bind offsets of a claimed queue."""
        self._refuse_decided(intent.txid)
        place = (intent.group, intent.qid)
        cursor = self._kept.cursors.get(place)
        if cursor is None or (cursor.owner, cursor.epoch) != (member, intent.epoch):
            raise LeaseLost(f"queue {intent.qid} is no longer {member}'s; drop the work")
        bound = self._kept.intents.get(place)
        if bound is None:
            if cursor.offset != intent.start:
                raise LeaseLost(f"queue {intent.qid} stands at {cursor.offset}, not at {intent.start}")
            self._kept.intents[place] = replace(intent, member=member)
        elif (bound.txid, bound.end) == (intent.txid, intent.start):
            self._kept.intents[place] = replace(bound, end=intent.end)
        elif (bound.txid, bound.end) != (intent.txid, intent.end) or intent.start < bound.start:
            raise LeaseLost(f"queue {intent.qid} is bound to another undecided transaction")

    def bind(self, txid: int, claim: Claim, retry: timedelta) -> None:
        """Make a claimed message a transaction's."""
        self._refuse_decided(txid)
        claim_ends.bind(self._kept, claim, self._life(txid).txid, retry, self._home.now())

    def apply_intents(self, txid: int, decision: Decision, *, why: str) -> None:
        """Move the cursors on COMMIT, end the intents and the claims that are bound."""
        for place, intent in list(self._kept.intents.items()):
            if intent.txid == txid:
                del self._kept.intents[place]
                if decision is Decision.COMMIT:
                    self._kept.cursors[place] = self._kept.cursors[place]._replace(offset=intent.end)
        claim_ends.decided(self._kept, txid, self._home.now(), why=why if decision is Decision.ROLLBACK else None)

    def write_op(self, txid: int, decision: Decision, *, from_check: bool, keyed: bool = True) -> bool:
        """Write a decision, unless one stands."""
        self._kept.unlist(txid)
        if self.standing(txid) is not None:
            return False
        self._kept.decide(Op(txid, decision, from_check))
        return True

    def due(self, txid: int) -> bool:
        """Tell whether a transaction is on the list of doubts and its time has come."""
        listed, life = self._kept.doubts.get(txid), self._kept.lives.get(txid)
        if life is not None and life.life.lease is not None and life.touched + life.life.lease > self._home.now():
            return False
        return listed is not None and listed.parked is None and listed.opened is life and listed.due <= self._home.now()

    def park(self, txid: int, why: str) -> None:
        """Ask about a transaction no more."""
        listed = self._kept.doubts.get(txid, Listed(self._home.now(), self._kept.lives.get(txid)))
        self._kept.doubts[txid] = listed._replace(parked=why)

    def resume(self, txid: int) -> bool:
        """Ask about a parked transaction again."""
        listed = self._kept.doubts.get(txid)
        if listed is None or listed.parked is None:
            return False
        now, opened = self._home.now(), self._kept.lives.get(txid)
        self._kept.doubts[txid] = listed._replace(parked=None, checks=0, due=now, opened=opened, resumed=now)
        return True

    def record(self, txid: int, event: str, *, who: str, why: str) -> None:
        """Write an audit row."""
        self._kept.audits.append(Audit(txid, event, who, why, self._home.now()))

    def standing(self, txid: int) -> Decision | None:
        """Return the decision that stands."""
        op = self._kept.ops.get(txid)
        return op.decision if op else None

    def _life(self, txid: int) -> TxRecord:
        life = self.lock(txid)
        if life is None:
            raise UnknownTransaction(f"there is no keyed transaction {txid}")
        return life

    def _put(self, life: TxRecord) -> TxRecord:
        now, known = self._home.now(), self._kept.lives.get(life.txid)
        self._kept.lives[life.txid] = Opened(life, known.born if known else now, now)
        return life

    def _refuse_if_rejecting(self) -> None:
        if self._home.rejecting:
            raise TransactionsRejected(str(self._home.identity))

    def _refuse_decided(self, txid: int) -> None:
        if txid in self._decided_before:
            raise TransactionClosed(f"transaction {txid} is decided; nothing can be added any more")


class MemoryLedgers(Ledgers):
    """Opens ledgers."""

    def __init__(self, home: Home, names: Names) -> None:
        self._home = home
        self._names = names

    @contextmanager
    def open(self) -> Iterator[MemoryLedger]:
        """Open a block."""
        with self._home.block() as draft:
            yield MemoryLedger(self._home, self._names, draft)
