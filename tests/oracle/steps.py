"""Steps and sagas in memory: every call of a batch is done under one lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from tests.oracle import step_moves
from tests.oracle.branches import MemoryBranches
from tests.oracle.home import Home
from tests.oracle.ledger import MemoryLedger
from tests.oracle.names import Names
from tests.oracle.rows import Kept, Opened, SagaRow
from txsaga.checkback.profile import LEASE
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxState
from txsaga.core.records import TxRecord
from txsaga.errors import (
    DecidedOtherwise,
    Superseded,
    TransactionClosed,
    TransactionError,
    TxSagaError,
)
from txsaga.flows.calls import Answer, Close, Mark, OpenSaga, RecordStep, ReleaseSaga, SagaCall, Settle, Start
from txsaga.flows.saga_values import ClaimedSaga, SagaFigures, SagaView
from txsaga.flows.step import StepRecord
from txsaga.flows.steps_store import Steps

DECIDED = {TxState.COMMITTED: Decision.COMMIT, TxState.ROLLED_BACK: Decision.ROLLBACK}
ORDER = (OpenSaga, RecordStep, Mark, Settle, ReleaseSaga, Close)


class MemorySteps(Steps):
    """Steps of a store in memory."""

    def __init__(self, home: Home, names: Names, branches: MemoryBranches) -> None:
        self._home, self._names, self._branches = home, names, branches

    def write(self, calls: Sequence[SagaCall]) -> Sequence[Answer | TxSagaError]:
        """Do calls of every kind, each with its own answer."""
        ordered = sorted(calls, key=lambda call: ORDER.index(type(call)))
        steps = [call for call in ordered if isinstance(call, OpenSaga | RecordStep)]
        answers = {id(call): self._one(call) for call in steps}
        with self._home.block() as kept:
            for call in calls:
                for mark in getattr(call, "marks", ()):
                    step_moves.marked(kept, mark, self._home.now())
        answers |= {id(call): self._one(call) for call in ordered if id(call) not in answers}
        return [answers[id(call)] for call in calls]

    def of(self, txid: int) -> Sequence[StepRecord]:
        """Return the steps of a transaction."""
        with self._home.lock:
            return [step for place, step in sorted(self._home.kept.steps.items()) if place[0] == txid]

    def of_all(self, txids: Sequence[int]) -> Mapping[int, Sequence[StepRecord]]:
        """Return the steps of many transactions in one look."""
        with self._home.lock:
            return {txid: steps for txid in txids if (steps := self.of(txid))}

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

    def listed(self, *, limit: int = 1_000, txid: int | None = None) -> Sequence[SagaView]:
        """Return the sagas that are not over."""
        with self._home.lock:
            rows = sorted(self._home.kept.sagas.items())
            return [self._view(number, row) for number, row in rows if txid in (None, number)][:limit]

    def counted(self) -> SagaFigures:
        """Count the sagas that are not over."""
        views = self.listed(limit=1_000_000)
        going = [view for view in views if not view.stalled]
        return SagaFigures(
            running=sum(view.decision is None for view in views),
            driving=sum(view.decision is not None and not view.why for view in going),
            waiting=sum(bool(view.why) for view in going),
            stalled=sum(view.stalled for view in views),
        )

    def _one(self, call: SagaCall) -> Answer | TxSagaError:
        if isinstance(call, Settle):
            return self._on_settle(call)
        try:
            with self._home.block() as kept:
                now = self._home.now()
                match call:
                    case OpenSaga():
                        return self._on_open(kept, call)
                    case RecordStep():
                        return self._on_record(kept, call)
                    case Mark():
                        return step_moves.marked(kept, call, now)
                    case ReleaseSaga():
                        return _rest(kept, call, now)
                    case Close():
                        return _close(kept, call)
        except TransactionError as wrong:
            return wrong

    def _on_open(self, kept: Kept, call: OpenSaga) -> Answer:
        ledger = MemoryLedger(self._home, self._names, kept)
        life = ledger.create(call.group, None, 1, call.run)
        assert life is not None
        kept.sagas[life.txid] = SagaRow(self._home.now() + LEASE)
        self._put(kept, life, call.steps)
        return life

    def _on_record(self, kept: Kept, call: RecordStep) -> Answer:
        opened = kept.lives.get(call.life.txid)
        if opened is None or opened.life.owner != call.life.owner:
            raise Superseded(call.life.txid)
        if call.life.txid in kept.ops:
            raise DecidedOtherwise(call.life.txid, kept.ops[call.life.txid].decision.name)
        if opened.life.state is not TxState.ACTIVE:
            raise TransactionClosed(f"transaction {call.life.txid} is closed; no step can begin any more")
        kept.sagas.setdefault(call.life.txid, SagaRow(self._home.now() + LEASE))
        self._put(kept, opened.life, call.steps)
        return None

    def _on_settle(self, call: Settle) -> Answer | TxSagaError:
        life = call.word.life
        (answer,) = self._branches.write([call.word])
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
        return answer

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
            kept.steps.setdefault((life.txid, start.number), fresh)

    def _view(self, txid: int, row: SagaRow) -> SagaView:
        kept, steps = self._home.kept, self.of(txid)
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


def _is_left(step: StepRecord, state: TxState) -> bool:
    if state in DECIDED:
        return step.waits and step.forward == (state is TxState.COMMITTED)
    return True


def _rest(kept: Kept, call: ReleaseSaga, now: datetime) -> bool:
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
    steps = [step for place, step in kept.steps.items() if place[0] == call.txid]
    if any(_is_left(step, opened.life.state) for step in steps):
        return False
    del kept.sagas[call.txid]
    return True
