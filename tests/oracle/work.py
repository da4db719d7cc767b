"""Branches, steps and sagas in memory: every request of a batch is done under one lock."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from tests.oracle import step_moves
from tests.oracle.home import Home
from tests.oracle.ledger import MemoryLedger
from tests.oracle.names import Names
from tests.oracle.rows import Kept, Op, Opened, SagaRow
from txsaga.checkback.profile import LEASE
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxEvent, TxState
from txsaga.core.records import TxRecord
from txsaga.errors import (
    DecidedOtherwise,
    EffectConflict,
    Superseded,
    TransactionClosed,
    TransactionError,
    TxSagaError,
    UnknownTransaction,
)
from txsaga.flows.branch import BRANCH, OVER, Branch, BranchEvent, BranchState
from txsaga.flows.requests import (
    NONE,
    Answer,
    Begin,
    BranchesWritten,
    BranchOutcome,
    ClaimedSaga,
    Close,
    Decide,
    Guest,
    Mark,
    Place,
    RecordSteps,
    Release,
    Request,
    SagaFigures,
    SagaView,
    Start,
)
from txsaga.flows.step import Step
from txsaga.flows.work_store import WorkStore

UNIT = {*BRANCH.moves, (BranchState.ACTIVE, BranchEvent.COMMIT)}
"""The moves of an auxiliary lane's unit, which may also commit by itself."""
STATES = {event: state for (_, event), state in BRANCH.moves.items()}
PART = 1
GUESTS = (TxState.PREPARED, TxState.COMMITTED, TxState.ROLLED_BACK)
DECIDED = {TxState.COMMITTED: Decision.COMMIT, TxState.ROLLED_BACK: Decision.ROLLBACK}
ORDER = (Begin, RecordSteps, Mark, Decide, BranchOutcome, Release, Close)


class MemoryWork(WorkStore):
    """Branches, steps and sagas of a store in memory."""

    def __init__(self, home: Home, names: Names) -> None:
        self._home, self._names = home, names

    def write(self, requests: Sequence[Request]) -> Sequence[Answer | TxSagaError]:
        """Do requests of every kind, each with its own answer."""
        ordered = sorted(requests, key=lambda each: ORDER.index(type(each)))
        first = [each for each in ordered if isinstance(each, Begin | RecordSteps)]
        answers = {id(each): self._one(each) for each in first}
        with self._home.block() as kept:
            for each in requests:
                for mark in getattr(each, "marks", ()):
                    step_moves.marked(kept, mark, self._home.now())
        answers |= {id(each): self._one(each) for each in ordered if id(each) not in answers}
        return [answers[id(each)] for each in requests]

    def branches(self, txid: int) -> Sequence[Branch]:
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

    def branches_in(
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

    def steps(self, txid: int) -> Sequence[Step]:
        """Return the steps of a transaction."""
        with self._home.lock:
            steps = sorted(self._home.kept.steps.items())
            return [step for place, step in steps if place[0] == txid and step.kind is not None]

    def steps_of(self, txids: Sequence[int]) -> Mapping[int, Sequence[Step]]:
        """Return the steps of many transactions in one look."""
        with self._home.lock:
            return {txid: steps for txid in txids if (steps := self.steps(txid))}

    def claim(
        self, driver: str, *, limit: int, lease: timedelta = LEASE, txid: int | None = None
    ) -> Sequence[ClaimedSaga]:
        """Take over sagas whose driver is gone."""
        with self._home.block() as kept:
            now, found = self._home.now(), list[ClaimedSaga]()
            for number, row in sorted(kept.sagas.items()):
                opened = kept.lives[number]
                if len(found) < limit and txid in (None, number) and _is_free(kept, row, opened, now):
                    found.append(self._claimed(kept, opened, driver, now + lease))
            return found

    def hold(self, held: Sequence[tuple[int, int]], lease: timedelta) -> None:
        """Show that the owner, or driver, of these is alive."""
        with self._home.block() as kept:
            for txid, owner in held:
                row, life = kept.sagas.get(txid), kept.lives[txid].life
                if row and life.owner == owner and (row.driver or life.state is TxState.ACTIVE):
                    kept.sagas[txid] = kept.sagas[txid]._replace(until=self._home.now() + lease)

    def sagas(self, *, limit: int = 1_000, txid: int | None = None) -> Sequence[SagaView]:
        """Return the sagas that are not over."""
        with self._home.lock:
            rows = sorted(self._home.kept.sagas.items())
            return [self._view(number, row) for number, row in rows if txid in (None, number)][:limit]

    def saga_figures(self) -> SagaFigures:
        """Count the sagas that are not over."""
        views = self.sagas(limit=1_000_000)
        going = [view for view in views if not view.stalled]
        return SagaFigures(
            running=sum(view.decision is None for view in views),
            driving=sum(view.decision is not None and not view.why for view in going),
            waiting=sum(bool(view.why) for view in going),
            stalled=sum(view.stalled for view in views),
        )

    def _one(self, request: Request) -> Answer | TxSagaError:
        answer: Answer | TxSagaError
        try:
            with self._home.block() as kept:
                answer = self._done(kept, request)
        except TransactionError as wrong:
            answer = wrong
        if isinstance(request, Decide) and request.driver is not None:
            self._settle(request)
        return answer

    def _done(self, kept: Kept, request: Request) -> Answer:
        now = self._home.now()
        match request:
            case Begin():
                return self._on_begin(kept, request)
            case RecordSteps():
                return self._on_record(kept, request)
            case Mark():
                return step_moves.marked(kept, request, now)
            case Decide():
                return self._on_decide(kept, request)
            case BranchOutcome():
                return self._on_outcome(kept, request)
            case Release():
                return _rest(kept, request, now)
            case Close():
                return _close(kept, request)

    def _on_begin(self, kept: Kept, begin: Begin) -> Answer:
        ledger = MemoryLedger(self._home, self._names, kept)
        life = ledger.create(begin.group, None, 1, begin.run)
        assert life is not None
        ledger.name(life, begin.resources)
        if begin.steps:
            kept.sagas[life.txid] = SagaRow(self._home.now() + LEASE)
            self._put(kept, life, begin.steps)
        return life

    def _on_record(self, kept: Kept, call: RecordSteps) -> Answer:
        opened = kept.lives.get(call.life.txid)
        if opened is None or opened.life.owner != call.life.owner:
            raise Superseded(call.life.txid)
        if call.life.txid in kept.ops:
            raise DecidedOtherwise(call.life.txid, kept.ops[call.life.txid].decision.name)
        if opened.life.state is not TxState.ACTIVE:
            raise TransactionClosed(f"transaction {call.life.txid} is sealed; no step can begin any more")
        kept.sagas.setdefault(call.life.txid, SagaRow(self._home.now() + LEASE))
        self._put(kept, opened.life, call.steps)
        return None

    def _on_decide(self, kept: Kept, call: Decide) -> Answer:
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
        ledger.record_votes(life.txid, call.votes)
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
        if (row.state, call.event) not in (UNIT if row.aux else BRANCH.moves):
            return False
        kept.branches[call[:3]] = row._replace(state=STATES[call.event], at=self._home.now(), why=call.why)
        return True

    def _settle(self, call: Decide) -> None:
        life = call.life
        with self._home.block() as kept:
            opened = kept.lives.get(life.txid)
            decision = None if opened is None else DECIDED.get(opened.life.state)
            if opened is not None and decision is not None and opened.life.owner == life.owner:
                left = self._see_to(kept, opened.life, decision, call.steps)
                row = kept.sagas.get(life.txid, SagaRow(self._home.now()))
                if left:
                    kept.sagas[life.txid] = row._replace(until=self._home.now() + LEASE, driver=call.driver)
                elif decision is Decision.COMMIT:
                    kept.sagas.pop(life.txid, None)

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

    def _see_to(self, kept: Kept, life: TxRecord, decision: Decision, steps: Sequence[Start]) -> bool:
        if decision is Decision.COMMIT:
            self._put(kept, life, steps)
            return bool(steps)
        return step_moves.compensate(kept, life.txid, self._home.now())

    def _claimed(self, kept: Kept, opened: Opened, driver: str, until: datetime) -> ClaimedSaga:
        life, now = opened.life, self._home.now()
        owner = life.owner + (life.lease is None or life.state is not TxState.COMMITTED)  # its owner may still tell
        kept.lives[life.txid] = opened._replace(life=replace(life, owner=owner), touched=now)
        kept.sagas[life.txid] = kept.sagas[life.txid]._replace(until=until, driver=driver)
        if life.state is TxState.ROLLED_BACK:
            step_moves.compensate(kept, life.txid, now)
        return ClaimedSaga(life.txid, life.group, owner, DECIDED.get(life.state), life.key)

    def _put(self, kept: Kept, life: TxRecord, steps: Sequence[Start]) -> None:
        for start in steps:
            fresh = step_moves.started(life.txid, life.owner, start, self._home.now())
            kept.steps.setdefault(fresh[:3], fresh)

    def _view(self, txid: int, row: SagaRow) -> SagaView:
        kept, steps = self._home.kept, self.steps(txid)
        life = kept.lives[txid].life
        return SagaView(
            txid=txid,
            group=self._names.group_by_id(life.group).name,
            key=life.key,
            decision=DECIDED.get(life.state),
            steps=len(steps),
            waiting=sum(_is_left(step, life.state) for step in steps),
            driver=row.driver,
            until=row.until,
            stalled=row.stalled,
            why=row.why,
        )


def _is_free(kept: Kept, row: SagaRow, opened: Opened, now: datetime) -> bool:
    life = opened.life
    if row.stalled:
        return False
    if life.state is not TxState.ACTIVE:
        return life.state in DECIDED and row.until <= now
    if life.lease is not None:
        return False  # a flow: check-back finds out that nobody is heard of
    expired = any(place[0] == life.txid and step.due and step.due <= now for place, step in kept.steps.items())
    return expired or (life.run is None and row.until <= now)


def _is_left(step: Step, state: TxState) -> bool:
    if state in DECIDED:
        return step.waits and step.forward == (state is TxState.COMMITTED)
    return True


def _rest(kept: Kept, call: Release, now: datetime) -> bool:
    row, opened = kept.sagas.get(call.txid), kept.lives.get(call.txid)
    if row is None or opened is None or opened.life.owner != call.owner:
        return False
    fresh = row._replace(until=now + call.by, driver=None, why=call.why, stalled=call.stalled)
    kept.sagas[call.txid] = fresh
    return True


def _close(kept: Kept, call: Close) -> bool:
    opened = kept.lives.get(call.txid)
    if call.txid not in kept.sagas or opened is None or opened.life.owner != call.owner:
        return False
    steps = [step for place, step in kept.steps.items() if place[0] == call.txid and step.kind is not None]
    if any(_is_left(step, opened.life.state) for step in steps):
        return False
    del kept.sagas[call.txid]
    return True
