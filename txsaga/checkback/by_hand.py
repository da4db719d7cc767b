"""
Settling one transaction by hand: an operator decides what nothing else could, with a reason that is kept.

An operator may not contradict what can be known, unless the decision is forced:

    no resource recorded, or still open     the operator decides (R1: an open transaction can't be committed)
    the evidence shows the other            refused
    no row, COMMIT wanted                   refused: the local work has not committed
    no row, ROLLBACK wanted                 the rollback barrier is written first
    nothing can answer, work still running  refused: in doubt
    it voted yes for another store          refused: that store decides

With force, a refusal is ignored; the barrier is still written where possible. A verdict holds only for the state that
was judged: when the owner closes meanwhile, it is judged again. The decision and its audit row are one step.
"""

from __future__ import annotations

from dataclasses import replace

from txsaga.checkback.doubt_context import DoubtContext
from txsaga.checkback.judge import Basis, Verdict
from txsaga.core import facts
from txsaga.core.decision import Decision
from txsaga.core.kernel import Kernel
from txsaga.core.lifecycle import TxEvent, TxState
from txsaga.core.records import DecisionOutcome, Doubt
from txsaga.errors import ConfigError, DecidedOtherwise, InDoubt, NotParked, TransactionError, UnknownTransaction
from txsaga.messages.decide import DecidedBy

MOVES = 3
"""How often an owner may move a transaction while an operator decides it: it closes once, and is parked once."""


class ByHand:
    """Decides single transactions for an operator who gives a reason."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._store = kernel, kernel.store

    def decide(self, txid: int, decision: Decision, *, who: str, why: str, force: bool = False) -> DecisionOutcome:
        """Decide a transaction; `DecidedOtherwise` when the other decision is final."""
        require_reason(why)
        doubt = self._known(txid)
        by = DecidedBy(who=who, why=why, from_check=True, by_hand=True, forced=force)
        standing = self._standing(txid) or self._decided(doubt, decision, by, force)
        if standing.decision is not decision:
            raise DecidedOtherwise(txid, standing.decision.name)
        return standing

    def _known(self, txid: int) -> Doubt:
        if (doubt := self._store.doubts.of(txid)) is None:
            raise UnknownTransaction(f"transaction {txid} is not in this store")
        return doubt

    def _standing(self, txid: int) -> DecisionOutcome | None:
        with self._store.ledgers.open() as ledger:
            decision = ledger.standing(txid)
        return None if decision is None else DecisionOutcome(txid, decision, False)

    def _decided(self, doubt: Doubt, decision: Decision, by: DecidedBy, force: bool) -> DecisionOutcome:
        for left in reversed(range(MOVES)):
            case = DoubtContext(self._store, doubt)
            verdict = self._kernel.settler.judge.know(case, fence=decision is Decision.ROLLBACK)
            if not force:
                _require_agreement(doubt.txid, verdict, decision)
            try:
                standing = self._write(case, decision, replace(by, found=verdict.found), verdict)
                break
            except InDoubt:
                if not left:
                    raise
        self._kernel.tell_decided()
        return standing

    def resume(self, txid: int, *, who: str, why: str) -> None:
        """Have a parked transaction checked again, from the first check on; this decides nothing."""
        require_reason(why)
        self._known(txid)
        with self._kernel.announce.around(facts.Resuming, txid), self._store.ledgers.open() as ledger:
            life = ledger.lock(txid)
            if (stands := ledger.standing(txid)) is not None:
                raise DecidedOtherwise(txid, stands.name)
            if life is not None and life.state is TxState.PARKED:
                ledger.move(txid, TxEvent.RESUME)  # before it is listed: a later step of its owner removes it again
            if not ledger.resume(txid):
                raise NotParked(txid)
            ledger.record(txid, "RESUMED", who=who, why=why)

    def _write(self, case: DoubtContext, decision: Decision, by: DecidedBy, verdict: Verdict) -> DecisionOutcome:
        txid = case.doubt.txid
        if case.doubt.keyed:
            return self._kernel.decider.decide(txid, decision, by, bodies=verdict.bodies)
        with self._kernel.announce.around(facts.Deciding, txid, about=decision.name):
            return self._decide_plain(txid, decision, by)

    def _decide_plain(self, txid: int, decision: Decision, by: DecidedBy) -> DecisionOutcome:
        with self._store.ledgers.open() as ledger:
            won = ledger.write_op(txid, decision, from_check=True, keyed=False)
            if won:
                ledger.record(txid, decision.audited[2 if by.forced else 1], who=by.who, why=by.why)
            standing = ledger.standing(txid)
        assert standing is not None
        return DecisionOutcome(txid, standing, won)


def require_reason(why: str) -> None:
    """Refuse a decision by hand without a reason."""
    if not why.strip():
        raise ConfigError("give a reason: it is recorded with the action")


def _require_agreement(txid: int, verdict: Verdict, decision: Decision) -> None:
    if verdict.basis is Basis.COORDINATOR:
        raise InDoubt(f"transaction {txid} is not for you to decide: {verdict.why}; wait, or force the decision")
    if verdict.basis is Basis.NO_ANSWER:
        raise InDoubt(
            f"the evidence of transaction {txid} can't be read: {verdict.why}; try again later, or force the decision"
        )
    if verdict.basis is Basis.EVIDENCE and verdict.state.decision is not decision:
        found = "committed" if verdict.state.decision is Decision.COMMIT else "did not commit"
        raise TransactionError(f"the local work of transaction {txid} {found}; decide the same, or force the other")
