"""
What becomes of a transaction that is out of checks, or that can't even be looked at.

Its group's handler is called first, if this process has one: it may say ROLLBACK. A group may say so for all of its
transactions. Where evidence is recorded nobody says it: the local work may have committed. Otherwise it is parked: off
the checks, invisible, listed with the reason, until a person settles it or has it asked about again. If this never
runs, it is asked about for ever.
"""

from __future__ import annotations

import logging

from txsaga.engine.case import Case
from txsaga.engine.checkers import Question
from txsaga.engine.decide import By
from txsaga.engine.kernel import Kernel
from txsaga.errors import TxSagaError
from txsaga.model import facts
from txsaga.model.asking import Verdict
from txsaga.model.checks import Exhausted
from txsaga.model.decision import Decision
from txsaga.model.lifecycle import TRANSACTION, TxEvent

logger = logging.getLogger("txsaga")
WHO = "check-back"


class Surrender:
    """Parks transactions, or rolls them back."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._store = kernel, kernel.store

    def __call__(self, case: Case, why: str, on_exhausted: Exhausted) -> str:
        """Give a transaction up; return what became of it."""
        said = self._handled(case)
        wanted = said is Decision.ROLLBACK or on_exhausted is Exhausted.ROLL_BACK
        if wanted and case.doubt.evidence is None:
            try:
                self._roll_back(case, why)
            except TxSagaError as failure:
                why = f"{why}; its rollback failed: {failure}"
            else:
                return "rolled back"
        self._park(case, why)
        return "parked"

    def _handled(self, case: Case) -> Decision | None:
        try:
            handler = self._kernel.handlers.get(case.group)
            if handler is None:
                return None
            doubt = case.doubt
            question = Question(txid=doubt.txid, id=case.id, group=case.group, key=None, case=case, checks=doubt.checks)
            return handler(question)
        except Exception:
            logger.exception("the handler of transaction %d failed", case.doubt.txid, extra={"txid": case.doubt.txid})
            return None

    def _roll_back(self, case: Case, why: str) -> None:
        doubt = case.doubt
        logger.error("transaction %d is rolled back: %s", doubt.txid, why, extra={"txid": doubt.txid})
        if doubt.keyed:
            self._kernel.decider.decide(doubt.txid, Decision.ROLLBACK, By(who=WHO, why=why, from_check=True))
        else:
            with self._kernel.announce.around(facts.Deciding, doubt.txid, about=WHO):
                self._store.doubts.settle([Verdict(doubt.txid, Decision.ROLLBACK, why)], WHO)

    def _park(self, case: Case, why: str) -> None:
        txid = case.doubt.txid
        logger.error("transaction %d is parked: %s", txid, why, extra={"txid": txid})
        with self._kernel.announce.around(facts.Parking, txid, about=why), self._store.ledgers.open() as ledger:
            life = ledger.lock(txid)
            if ledger.standing(txid) is not None:
                return  # a decision came first
            if life is not None and life.state in TRANSACTION.sources(TxEvent.PARK):
                ledger.move(txid, TxEvent.PARK)
            ledger.park(txid, why)
            ledger.record(txid, "PARKED", who=WHO, why=why)
