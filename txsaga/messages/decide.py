"""
Decides a keyed or flow transaction together with its home effects.

Owner and check-back both decide here: the `tx` row is locked, the transaction's home effects are applied and the op row
is written, all in one database transaction. Otherwise messages would become visible without the cursors and late bodies
that belong to them (R2). Blocks and sagas without home effects are decided in batches by `flows/sql/branch.sql`.

* Others may commit only a transaction its owner has closed (R1), and roll back one judged open only while it is open.
* A branch that voted yes is decided by its coordinator, or by an operator's force, which it learns of (R15).
* The first decision is final; repeating it is success, the opposite one is `DecidedOtherwise`.
* After a lost answer only a definite answer ends the retries: "unavailable" would imply that nothing was done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from txsaga import errors
from txsaga.core import facts
from txsaga.core.announcer import Announcer
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TRANSACTION, TxEvent, TxState
from txsaga.core.records import DecisionOutcome, TxRecord
from txsaga.core.retry import PATIENCE, patiently
from txsaga.evidence.late_bodies import LATE_PART, lay_out
from txsaga.flows.ballot import require_carried
from txsaga.flows.step import HOME
from txsaga.lake.table import Effect
from txsaga.messages.effects import Effects, HomeEffect, PreparedEffects

if TYPE_CHECKING:
    from txsaga.messages.ledger_store import Ledger, Ledgers


EVENTS = {Decision.COMMIT: TxEvent.COMMIT, Decision.ROLLBACK: TxEvent.ROLL_BACK}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedBy:
    """Who decides, and why; an owner must still be the owner."""

    who: str
    why: str
    owner: int | None = None
    from_check: bool = False
    found: TxState | None = None  # the state that was judged; the verdict is void in another state
    told: bool = False  # decided by the store that coordinates this branch
    by_hand: bool = False  # by an operator
    forced: bool = False  # by an operator, whatever the evidence or a coordinator says
    unheard: bool = False  # valid only while no owner has shown activity: one that took over or woke up continues


class Decider:
    """Decides transactions that have a `tx` row."""

    def __init__(
        self,
        ledgers: Ledgers,
        announce: Announcer,
        patience: float = PATIENCE,
        *,
        effects: Mapping[str, HomeEffect] | None = None,
        wake: Callable[[], object] = lambda: None,
    ) -> None:
        self._ledgers, self._announce, self._patience = ledgers, announce, patience
        self._wake = wake  # called once something is decided
        self.effects = Effects(effects or {}, announce)

    def decide(
        self,
        txid: int,
        decision: Decision,
        by: DecidedBy,
        *,
        bodies: Mapping[int, bytes] | None = None,
        known: Sequence[Effect] = (),
    ) -> DecisionOutcome:
        """Write a decision with all its home effects, including the `known` ones; return the final decision."""
        once = partial(self._once, txid, decision, by, bodies)
        with self._announce.around(facts.Deciding, txid, about=decision.name):
            outcome = self.effects.around(txid, partial(self._surely, txid, once), known)
        self._wake()
        return outcome

    def _surely(
        self, txid: int, once: Callable[[PreparedEffects], DecisionOutcome], ready: PreparedEffects
    ) -> tuple[DecisionOutcome, bool]:
        """Decide; if the answer is lost, find the decision or write it, while the store is unavailable too."""
        try:
            outcome = once(ready)
        except errors.OutcomeUnknown:
            ready.may_stand = True
            try:
                outcome = patiently(lambda: once(ready), self._patience)
            except errors.TransactionError:
                raise
            except errors.TxSagaError as silent:
                raise errors.OutcomeUnknown(
                    f"it is unknown whether transaction {txid} was decided: {silent}"
                ) from silent
        return outcome, outcome.won

    def _once(
        self, txid: int, decision: Decision, by: DecidedBy, bodies: Mapping[int, bytes] | None, ready: PreparedEffects
    ) -> DecisionOutcome:
        with self._ledgers.open() as ledger:
            return self.within(ledger, txid, decision, by, bodies, ready)

    def within(
        self,
        ledger: Ledger,
        txid: int,
        decision: Decision,
        by: DecidedBy,
        bodies: Mapping[int, bytes] | None = None,
        ready: PreparedEffects | None = None,
    ) -> DecisionOutcome:
        """Write a decision with all its home effects in an open ledger; it is final once the ledger commits."""
        life = ledger.lock(txid)
        if life is None:
            raise errors.UnknownTransaction(f"transaction {txid} is not in this store, or it is not keyed")
        standing = ledger.standing(txid)
        if standing is not None:
            return DecisionOutcome(txid, standing, False)
        self._check(life, decision, by)
        if by.unheard and not ledger.due(txid):
            raise errors.InDoubt(f"another process works on transaction {txid}")
        if decision is Decision.COMMIT:
            require_carried(ledger.ballots(txid))
            self._apply(ledger, life, bodies or {})
            (ready or PreparedEffects()).apply(ledger, txid)
            if life.lease is not None:
                self._end_flow(ledger, txid, by)
        ledger.apply_intents(txid, decision, why=by.why)
        ledger.move(txid, EVENTS[decision])
        if life.coordinator is not None and (by.told or not life.voted):
            ledger.release(txid)  # a forced branch stays with its coordinator, which must learn of it
        ledger.write_op(txid, decision, from_check=by.from_check)
        ledger.record(txid, decision.audited[2 if by.forced else by.by_hand], who=by.who, why=by.why)
        return DecisionOutcome(txid, decision, True)

    def _end_flow(self, ledger: Ledger, txid: int, by: DecidedBy) -> None:
        """Do what a flow journalled for the home database: only with its own login's rights."""
        if by.owner is not None:
            ledger.flows.do_home_work(txid)
            ledger.flows.drop_compensations(txid)  # after another process's COMMIT the role does this
        elif any(each.resource == HOME for each in ledger.flows.journal(txid)):
            raise errors.EffectConflict(
                f"flow {txid} has rows for the home database; only a process of the flow writes them"
            )

    def _check(self, life: TxRecord, decision: Decision, by: DecidedBy) -> None:
        if by.owner is not None and by.owner != life.owner:
            raise errors.Superseded(life.txid)
        if by.found is not None and by.found is not life.state:
            raise errors.InDoubt(
                f"transaction {life.txid} went from {by.found} to {life.state} while it was checked; check it again"
            )
        if life.voted and not (by.told or by.forced):
            raise errors.InDoubt(
                f"transaction {life.txid} voted yes for store {life.coordinator}, which decides it; "
                "wait for that store, or force the decision"
            )
        if decision is Decision.COMMIT and life.state is TxState.ACTIVE:
            raise errors.IllegalTransition(
                f"transaction {life.txid} is still open: only its owner can seal it, others may roll it back"
            )
        TRANSACTION.after(life.state, EVENTS[decision])

    def _apply(self, ledger: Ledger, life: TxRecord, bodies: Mapping[int, bytes]) -> None:
        slots = ledger.slots(life.txid)
        if missing := [slot.slot for slot in slots if slot.slot not in bodies]:
            raise errors.EffectConflict(f"transaction {life.txid} has no body for its late slots {missing}")
        if slots:
            ledger.add(life, LATE_PART, [lay_out(slot, bodies[slot.slot]) for slot in slots])
            ledger.win(life.txid, LATE_PART, life.owner)
