"""Branches in memory: every call of a batch is done under one lock."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from uuid import UUID

from txsaga.adapters.memory.home import Home
from txsaga.adapters.memory.ledger import MemoryLedger
from txsaga.adapters.memory.names import Names
from txsaga.adapters.memory.rows import BranchRow, Kept, Op
from txsaga.errors import EffectConflict, Superseded, TransactionError, TxSagaError, UnknownTransaction
from txsaga.model.branch import BRANCH, HEURISTIC, Branch, BranchEvent, BranchState
from txsaga.model.decision import Decision
from txsaga.model.lifecycle import TxEvent, TxState
from txsaga.ports.branches import NONE, Answer, Begin, Call, Guest, Noted, Resolve

OPEN = BRANCH.sources(BranchEvent.ROLL_BACK)
STATES = {event: state for (_, event), state in BRANCH.moves.items()}
PART = 1
GUESTS = (TxState.PREPARED, TxState.COMMITTED, TxState.ROLLED_BACK)


class MemoryBranches:
    """Branches of a store in memory."""

    def __init__(self, home: Home, names: Names) -> None:
        self._home, self._names = home, names

    def write(self, calls: Sequence[Call]) -> Sequence[Answer | TxSagaError]:
        """Do calls of every kind, each with its own answer."""
        return [self._one(call) for call in calls]

    def of(self, txid: int) -> Sequence[Branch]:
        """Return the branches of a transaction, every attempt."""
        return [each for each in self._all() if each.txid == txid]

    def unfinished(
        self, *, after: tuple[int, int, int] = NONE, older: timedelta = timedelta(), limit: int = 1_000
    ) -> Sequence[tuple[Branch, Decision]]:
        """Return branches whose transaction is decided and whose resource has not acknowledged."""
        ops, before = self._home.kept.ops, self._home.now() - older
        waiting = [each for each in self._all() if each.txid in ops and each.unfinished and each.at <= before]
        return [(each, ops[each.txid].decision) for each in waiting if each[:3] > after][:limit]

    def listed(
        self,
        states: Collection[BranchState],
        *,
        resource: str | None = None,
        after: tuple[int, int, int] = NONE,
        limit: int = 1_000,
    ) -> Sequence[Branch]:
        """Return branches that stand in one of these states, of one resource or of all."""
        named = [each for each in self._all() if resource in (None, each.resource)]
        return [each for each in named if each.state in states and each[:3] > after][:limit]

    def guests(self, coordinator: UUID | None = None, *, after: int = 0, limit: int = 1_000) -> Sequence[Guest]:
        """Return, in order, what voted yes here for another store, or for any."""
        with self._home.lock:
            lives = [opened.life for _, opened in sorted(self._home.kept.lives.items())]
        found = [
            Guest(life.txid, life.key or "", life.coordinator, life.state)
            for life in lives
            if life.coordinator is not None and life.state in GUESTS and life.txid > after
        ]
        return [each for each in found if coordinator in (None, each.coordinator)][:limit]

    def _all(self) -> list[Branch]:
        with self._home.lock:
            resource = self._names.resource_by_id
            rows = sorted(self._home.kept.branches.items())
            return [
                Branch(*place, resource(row.resource).name, *row[1:4], row.resource, row.aux) for place, row in rows
            ]

    def _one(self, call: Call) -> Answer | TxSagaError:
        try:
            with self._home.block() as kept:
                match call:
                    case Begin():
                        return self._begin(kept, call)
                    case Resolve():
                        return self._resolve(kept, call)
                    case Noted():
                        return self._note(kept, call)
        except TransactionError as wrong:
            return wrong

    def _begin(self, kept: Kept, call: Begin) -> Answer:
        ledger = MemoryLedger(self._home, self._names, kept)
        life = ledger.create(call.group, None, 1, call.run)
        assert life is not None
        ledger.name(life, call.resources)
        return life

    def _resolve(self, kept: Kept, call: Resolve) -> Answer:
        ledger = MemoryLedger(self._home, self._names, kept)
        life = ledger.lock(call.life.txid)
        if life is None:
            raise UnknownTransaction(f"transaction {call.life.txid} is not in this store")
        if life.owner != call.life.owner:
            raise Superseded(life.txid)
        standing = ledger.standing(life.txid)
        if standing is not None:
            return standing
        if call.decision is None and life.state is TxState.ENDED:
            return None
        if call.decision is not None and (kept.is_bound(life.txid) or life.state is TxState.PARKED):
            raise EffectConflict(f"transaction {life.txid} has something bound to it that is decided with it")
        if call.rows:
            ledger.add(life, PART, call.rows)
        if call.rows or (life.txid, PART) in kept.winners:
            ledger.win(life.txid, PART, life.owner)
        ledger.elect(life.txid, call.votes)
        if life.state is TxState.ACTIVE and call.decision is not Decision.ROLLBACK:
            ledger.move(life.txid, TxEvent.END, evidence=call.evidence)
        ledger.touch(life.txid)
        if call.decision is not None:
            ledger.move(life.txid, TxEvent.COMMIT if call.decision is Decision.COMMIT else TxEvent.ROLL_BACK)
            kept.decide(Op(life.txid, call.decision, False))
            ledger.record(life.txid, call.decision.name, who=call.who, why=call.why)
        return call.decision

    def _note(self, kept: Kept, call: Noted) -> Answer:
        row = kept.branches.get(call[:3])
        if row is None or not (row.aux or call.txid in kept.ops) or not _may_follow(row, call.event):
            return False
        kept.branches[call[:3]] = row._replace(state=STATES[call.event], at=self._home.now(), why=call.why)
        return True


def _may_follow(row: BranchRow, event: BranchEvent) -> bool:
    match event:
        case BranchEvent.COMMIT:
            return row.state is BranchState.PREPARED or (row.aux and row.state is BranchState.ACTIVE)
        case BranchEvent.FORGET:
            return row.state in HEURISTIC
        case _:
            return row.state in OPEN
