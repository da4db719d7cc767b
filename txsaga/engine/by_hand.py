"""
Settling one transaction by hand: a person decides what nothing else could.

It takes the one way to decide, so home effects happen with it (R2) and the first decision stands. A person
may not contradict what can be known: where evidence is recorded it is asked first, unless the decision is
forced.

    no evidence recorded, or still open        nothing to ask: the person's word counts
    the evidence says the other                refused
    no row, COMMIT wanted                      refused: the local work has not committed
    no row, ROLLBACK wanted                    the rollback barrier is written first
    local transaction still running            refused: in doubt
    the evidence can't be read                 refused: in doubt

Forced, a refusal is passed over; the barrier is still written where it can be. The audit row is written
before a plain half is decided: if this dies in between, the row says who asked, and nothing else happened.
"""

from __future__ import annotations

from txsaga.engine.decide import By
from txsaga.engine.kernel import Kernel
from txsaga.errors import (
    ConfigError,
    DecidedOtherwise,
    EvidenceMissing,
    InDoubt,
    ResourceUnknown,
    StoreError,
    TransactionError,
    TxSagaError,
    UnknownTransaction,
)
from txsaga.model import facts
from txsaga.model.decision import Decision
from txsaga.model.records import Doubt, End, Outcome, Standing
from txsaga.ports.evidence import Evidence

NO_BODIES = Outcome(committed=True, bodies={})


class ByHand:
    """Decides single transactions for a person who gives a reason."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._store = kernel, kernel.store

    def decide(self, txid: int, decision: Decision, *, who: str, why: str, force: bool = False) -> Standing:
        """Decide a transaction; `DecidedOtherwise` when the other decision stands."""
        if not why.strip():
            raise ConfigError("say why: a decision by hand is kept with its reason")
        doubt = self._store.log.doubt(txid)
        if doubt is None:
            raise UnknownTransaction(f"transaction {txid} is not in this store")
        standing = self._standing(txid) or self._decide(doubt, decision, who, why, force)
        if standing.decision is not decision:
            raise DecidedOtherwise(txid, standing.decision.name)
        return standing

    def _standing(self, txid: int) -> Standing | None:
        with self._store.ledgers.open() as ledger:
            decision = ledger.standing(txid)
        return None if decision is None else Standing(txid, decision, False)

    def _decide(self, doubt: Doubt, decision: Decision, who: str, why: str, force: bool) -> Standing:
        outcome = self._asked(doubt, decision, force)
        if doubt.keyed:
            by = By(who=who, why=why, from_check=True)
            standing = self._kernel.decider.decide(doubt.txid, decision, by, bodies=outcome.bodies)
        else:
            standing = self._decide_half(doubt, decision, who, why)
        self._store.log.settled([doubt.txid])
        self._kernel.on_decided()
        return standing

    def _decide_half(self, doubt: Doubt, decision: Decision, who: str, why: str) -> Standing:
        announce, txid = self._kernel.announce, doubt.txid
        with announce.around(facts.Recording, facts.Recorded, txid), self._store.ledgers.open() as ledger:
            ledger.record(txid, f"{decision.name} BY HAND", who=who, why=why)
        end = End(txid, doubt.group, doubt.token, decision, from_check=True)
        with announce.around(facts.Deciding, facts.Decided, txid, about=decision.name):
            (answer,) = self._store.halves.decide([end])
        if isinstance(answer, TxSagaError):
            raise answer
        return answer

    def _asked(self, doubt: Doubt, decision: Decision, force: bool) -> Outcome:
        """Ask the evidence, and refuse what it contradicts."""
        if doubt.evidence is None:
            return NO_BODIES
        try:
            outcome = self._outcome(doubt, doubt.evidence, decision)
            if outcome.committed is (decision is Decision.COMMIT):
                return outcome
            found = "committed" if outcome.committed else "did not commit"
            raise TransactionError(
                f"the local work of transaction {doubt.txid} {found}; decide the same, or force the other"
            )
        except TransactionError:
            if not force:
                raise
            return NO_BODIES

    def _outcome(self, doubt: Doubt, resource: int, decision: Decision) -> Outcome:
        recorded = self._store.registry.resource_by_id(resource)
        transaction = self._store.registry.identity.transaction(doubt.txid)
        try:
            _, evidence = self._kernel.evidence(recorded.name)
            if evidence.database != recorded.database:
                raise InDoubt(
                    f"resource {recorded.name!r} leads to another database than the one of transaction "
                    f"{doubt.txid}; register the right one, or force the decision"
                )
            outcome = evidence.read(transaction)
            if outcome is None and decision is Decision.ROLLBACK:
                return self._fenced(evidence, doubt.txid, transaction)
            return outcome or Outcome(committed=False, bodies={})
        except (ResourceUnknown, EvidenceMissing, StoreError) as reason:
            raise InDoubt(
                f"the evidence of transaction {doubt.txid} can't be read: {reason}; repair that, or force the decision"
            ) from reason

    def _fenced(self, evidence: Evidence, txid: int, transaction: str) -> Outcome:
        with self._kernel.announce.around(facts.Fencing, facts.Fenced, txid):
            outcome = evidence.fence(transaction)
        if outcome is None:
            raise InDoubt(f"the local transaction of {txid} is still running; try again later, or force the decision")
        return outcome
