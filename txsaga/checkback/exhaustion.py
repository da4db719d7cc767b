"""
What happens to a transaction that is out of checks, or that can't even be read.

Its group's handler is called first, if this process has one: it may return ROLLBACK. A group may set that for all of
its transactions. Neither applies where evidence is recorded: the local work may have committed. Otherwise it is parked:
off the checks, invisible, listed with the reason, until an operator settles it or resumes its checks. If this never
runs, it is checked for ever.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from txsaga.checkback.checkers import Question, question_about
from txsaga.checkback.doubt_context import DoubtContext
from txsaga.checkback.profile import Exhausted
from txsaga.checkback.questions import kept
from txsaga.core import facts
from txsaga.core.decision import Decision, LocalState
from txsaga.core.failure import contained
from txsaga.core.kernel import Handler, Kernel
from txsaga.core.lifecycle import TRANSACTION, TxEvent
from txsaga.errors import InDoubt, TxSagaError
from txsaga.messages.decide import DecidedBy

if TYPE_CHECKING:
    from txsaga.messages.ledger_store import Ledger


logger = logging.getLogger("txsaga")
WHO = "check-back"


class Exhaustion:
    """Parks transactions, or rolls them back."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._store = kernel, kernel.store

    def __call__(self, case: DoubtContext, why: str, on_exhausted: Exhausted) -> str:
        """Give up on a transaction; return what was done. `InDoubt` if its owner became active meanwhile."""
        said = self._handled(case)
        if said is Decision.ROLLBACK or on_exhausted is Exhausted.ROLL_BACK:
            try:
                decision = self._roll_back(case, why)
            except InDoubt:
                raise
            except TxSagaError as failure:
                why = f"{why}; its rollback failed: {failure}"
            else:
                if decision is not None:
                    return "rolled back" if decision is Decision.ROLLBACK else "settled"
        return self._park(case, why)

    def _handled(self, case: DoubtContext) -> Decision | None:
        """Call the group's handler; `StoreUnavailable` when it does not answer: that is no reason to park."""
        handler = self._kernel.handlers.get(case.group)
        if handler is None:
            return None
        view = self._store.registry.transaction(case.doubt.txid)
        question = question_about(case, view.key if view else None)
        return self._kernel.beside.begin(
            f"the handler of group {case.group!r}", partial(_said, case, handler, question)
        )()

    def _roll_back(self, case: DoubtContext, why: str) -> Decision | None:
        """Write ROLLBACK, unless evidence is recorded: then only that decides. Return the decision."""
        txid = case.doubt.txid
        if not case.doubt.keyed:
            if case.doubt.evidence is not None:
                return None
            decision = self._roll_back_plain(txid, why)
        else:
            with self._store.ledgers.open() as ledger:
                life = ledger.lock(txid)
            if life is None or life.evidence is not None:
                return None
            by = DecidedBy(who=WHO, why=why, from_check=True, found=life.state, unheard=True)
            decision = self._kernel.decider.decide(txid, Decision.ROLLBACK, by).decision
        logger.error("transaction %d: %s (%s)", txid, decision.name, why, extra={"txid": txid})
        return decision

    def _roll_back_plain(self, txid: int, why: str) -> Decision:
        with self._kernel.announce.around(facts.Deciding, txid, about=WHO), self._store.ledgers.open() as ledger:
            stands = ledger.standing(txid)
            if stands is None:
                _require_due(ledger, txid)
                if ledger.write_op(txid, Decision.ROLLBACK, from_check=True, keyed=False):
                    ledger.record(txid, Decision.ROLLBACK.name, who=WHO, why=kept(why))
                stands = ledger.standing(txid)
        assert stands is not None
        return stands

    def _park(self, case: DoubtContext, why: str) -> str:
        txid = case.doubt.txid
        with self._kernel.announce.around(facts.Parking, txid, about=why), self._store.ledgers.open() as ledger:
            life = ledger.lock(txid)
            if ledger.standing(txid) is not None:
                return "settled"  # a decision came first
            if life is not None and life.voted:
                raise InDoubt(f"transaction {txid} voted yes for store {life.coordinator}, which decides it")
            _require_due(ledger, txid)
            if life is not None and life.state in TRANSACTION.sources(TxEvent.PARK):
                ledger.move(txid, TxEvent.PARK)
            ledger.park(txid, why)
            ledger.record(txid, "PARKED", who=WHO, why=kept(why))
        logger.error("transaction %d is parked: %s", txid, why, extra={"txid": txid})
        return "parked"


def _said(case: DoubtContext, handler: Handler, question: Question) -> Decision | None:
    try:
        return _understood(case, contained(partial(handler, question)))
    except Exception:  # the user's code: no exception of it ends the round
        logger.exception("the handler of transaction %d failed", case.doubt.txid, extra={"txid": case.doubt.txid})
        return None


def _understood(case: DoubtContext, said: object) -> Decision | None:
    """Return a handler's answer; only ROLLBACK is accepted, as either enum or as text."""
    if said is Decision.ROLLBACK or said == LocalState.ROLLBACK:
        return Decision.ROLLBACK
    if said is not None:
        what = "the handler of group %r said %r about transaction %d; it can only say ROLLBACK, so it is not heard"
        logger.warning(what, case.group, said, case.doubt.txid, extra={"txid": case.doubt.txid})
    return None


def _require_due(ledger: Ledger, txid: int) -> None:
    if not ledger.due(txid):
        raise InDoubt(f"somebody works on transaction {txid}, or had it asked about again")
