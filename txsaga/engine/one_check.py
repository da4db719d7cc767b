"""
Asking about one transaction now, as a round of check-back would: the evidence first, then a checker.

For whoever waits for it and knows whom to ask. What is young, or at work, or a living run's, is not asked about yet.
What is still open is left alone: only a round may take it for abandoned, since it knows who was heard of. What stands
already is the answer. If it is never called, the engine's own rounds ask in their time.
"""

from __future__ import annotations

from dataclasses import dataclass

from txsaga.engine.case import Case
from txsaga.engine.checkers import Checker, ask, question_about
from txsaga.engine.decide import By
from txsaga.engine.judge import UNCOUNTED, Basis, Verdict
from txsaga.engine.kernel import Kernel
from txsaga.engine.run_first import LIVES, SILENT, state_of_run
from txsaga.errors import EffectConflict, InDoubt, UnknownTransaction
from txsaga.model.checks import CheckProfile
from txsaga.model.decision import Decision
from txsaga.model.records import Doubt
from txsaga.ports.runs import RunState

YOUNG = "it is young, or somebody is at work on it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What one check came to."""

    decision: Decision | None
    why: str
    counted: bool  # somebody was there to say, and could not


class OneCheck:
    """Checks of single transactions."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._store = kernel, kernel.store

    def ask(self, txid: int, checker: Checker | None = None) -> Answered:
        """Settle a transaction as far as it can be known; `checker` is asked where only a word can tell."""
        stands = self._store.overview.decisions([txid]).get(txid)
        if stands is not None:
            return Answered(decision=stands, why="it stands", counted=False)
        doubt = self._store.doubts.of(txid)
        if doubt is None:
            raise UnknownTransaction(f"transaction {txid} is not in this store")
        if rest := self._rest(doubt):
            return Answered(decision=None, why=rest, counted=False)
        case = Case(self._store, doubt)
        verdict = self._kernel.settler.judge.know(case, fence=False)
        if verdict.basis is Basis.OPEN:
            return Answered(decision=None, why="it is still open", counted=False)
        verdict = self._kernel.settler.judge.know(case)
        if verdict.basis is Basis.WORD and checker is not None:
            verdict = self._said(case, checker, verdict)
        return self._settled(case, verdict)

    def _rest(self, doubt: Doubt) -> str | None:
        """Say why nobody is to ask yet: what lives is not fenced."""
        run = state_of_run(self._kernel, doubt)
        if run is not RunState.OVER:
            return LIVES if run is RunState.ALIVE else SILENT
        if self._store.doubts.rests(doubt.txid, CheckProfile().min_age):
            return YOUNG
        return None

    def _said(self, case: Case, checker: Checker, verdict: Verdict) -> Verdict:
        view = self._store.registry.transaction(case.doubt.txid)
        answer, why = ask(checker, question_about(case, view.key if view else None))
        return Verdict(answer, why, Basis.WORD, found=verdict.found)

    def _settled(self, case: Case, verdict: Verdict) -> Answered:
        self._kernel.settler.report(case, verdict.state, verdict.why)
        decision = verdict.state.decision
        if decision is None or verdict.basis is Basis.OPEN:
            return Answered(decision=None, why=verdict.why, counted=verdict.basis not in UNCOUNTED)
        by = By(who="check-back of a sensor", why=verdict.why, from_check=True, found=verdict.found)
        try:
            standing = self._kernel.settler.written(case, decision, by, verdict)
        except (EffectConflict, InDoubt) as reason:
            return Answered(decision=None, why=str(reason), counted=True)
        self._kernel.tell_decided()
        return Answered(decision=standing.decision, why=verdict.why, counted=False)
