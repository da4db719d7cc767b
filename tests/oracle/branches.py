"""Branches in memory: every call of a batch is done under one lock."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from uuid import UUID

from tests.oracle.home import Home
from tests.oracle.ledger import MemoryLedger
from tests.oracle.names import Names
from tests.oracle.rows import Kept, Op
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxEvent, TxState
from txsaga.errors import (
    EffectConflict,
    Superseded,
    TransactionError,
    TxSagaError,
    UnknownTransaction,
)
from txsaga.flows.branch import BRANCH, OVER, UNIT, Branch, BranchState
from txsaga.flows.branches_store import BranchStore
from txsaga.flows.calls import (
    NONE,
    Answer,
    BeginBranches,
    BranchesWritten,
    BranchOutcome,
    Call,
    DecisionRequest,
    Guest,
    Place,
)

STATES = {event: state for (_, event), state in BRANCH.moves.items()}
PART = 1
GUESTS = (TxState.PREPARED, TxState.COMMITTED, TxState.ROLLED_BACK)


class MemoryBranches(BranchStore):
    """Branches of a store in memory."""

    def __init__(self, home: Home, names: Names) -> None:
        self._home, self._names = home, names

    def write(self, calls: Sequence[Call]) -> Sequence[Answer | TxSagaError]:
        """Do calls of every kind, each with its own answer."""
        return [self._one(call) for call in calls]

    def of(self, txid: int) -> Sequence[Branch]:
        """Return the branches of a transaction, every attempt."""
        return [each for each in self._all() if each.txid == txid]

    def written(self, txids: Collection[int]) -> Mapping[int, BranchesWritten]:
        """Return what is written of each of these transactions."""
        with self._home.lock:
            kept, branches = self._home.kept, self._all()
            return {
                txid: BranchesWritten(
                    kept.lives[txid].life.owner,
                    kept.ops[txid].decision if txid in kept.ops else None,
                    [each for each in branches if each.txid == txid],
                )
                for txid in txids
                if txid in kept.lives
            }

    def over(self, places: Collection[Place]) -> Collection[Place]:
        """Return those that are over."""
        return {each[:3] for each in self._all() if each[:3] in places and each.state in OVER}

    def unfinished(
        self, *, after: tuple[int, int, int] = NONE, older: timedelta = timedelta(), limit: int = 1_000
    ) -> Sequence[tuple[Branch, Decision]]:
        """Return branches whose transaction is decided and whose resource has not acknowledged."""
        before = self._home.now() - older
        waiting = [each for each in self._all() if each.unfinished and each.at <= before and each[:3] > after]
        decided = [(each, decision) for each in waiting if (decision := self._decision(each)) is not None]
        return decided[:limit]

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

    def _decision(self, branch: Branch) -> Decision | None:
        row, op = self._home.kept.branches[branch[:3]], self._home.kept.ops.get(branch.txid)
        return row.decision or (op and op.decision)

    def _one(self, call: Call) -> Answer | TxSagaError:
        try:
            with self._home.block() as kept:
                match call:
                    case BeginBranches():
                        return self._on_begin(kept, call)
                    case DecisionRequest():
                        return self._on_decide(kept, call)
                    case BranchOutcome():
                        return self._on_outcome(kept, call)
        except TransactionError as wrong:
            return wrong

    def _on_begin(self, kept: Kept, call: BeginBranches) -> Answer:
        ledger = MemoryLedger(self._home, self._names, kept)
        life = ledger.create(call.group, None, 1, call.run)
        assert life is not None
        ledger.name(life, call.resources)
        return life

    def _on_decide(self, kept: Kept, call: DecisionRequest) -> Answer:
        ledger = MemoryLedger(self._home, self._names, kept)
        life = ledger.lock(call.life.txid)
        if life is None:
            raise UnknownTransaction(f"transaction {call.life.txid} is not in this store")
        if life.owner != call.life.owner:
            raise Superseded(life.txid)
        standing = ledger.standing(life.txid)
        if standing is not None:
            return standing
        if call.decision is None and life.state is TxState.SEALED:
            return None
        if call.decision is not None and (kept.is_bound(life.txid) or life.state is TxState.PARKED):
            raise EffectConflict(f"transaction {life.txid} has something bound to it that is decided with it")
        if call.rows:
            ledger.add(life, PART, call.rows)
        if call.rows or (life.txid, PART) in kept.winners:
            ledger.win(life.txid, PART, life.owner)
        ledger.elect(life.txid, call.votes)
        if life.state is TxState.ACTIVE and call.decision is not Decision.ROLLBACK:
            ledger.move(life.txid, TxEvent.SEAL, evidence=call.evidence)
        ledger.touch(life.txid)
        if call.decision is not None:
            ledger.move(life.txid, TxEvent.COMMIT if call.decision is Decision.COMMIT else TxEvent.ROLL_BACK)
            kept.decide(Op(life.txid, call.decision, False))
            ledger.record(life.txid, call.decision.name, who=call.who, why=call.why)
        return call.decision

    def _on_outcome(self, kept: Kept, call: BranchOutcome) -> Answer:
        row = kept.branches.get(call[:3])
        if row is None or not (row.aux or row.decision or call.txid in kept.ops):
            return False
        if (row.state, call.event) not in (UNIT if row.aux else BRANCH).moves:
            return False
        kept.branches[call[:3]] = row._replace(state=STATES[call.event], at=self._home.now(), why=call.why)
        return True
