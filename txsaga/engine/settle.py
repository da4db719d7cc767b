"""
Settling one transaction that nobody decided: the evidence first, then the group's checker.

It fences: evidence that says "not committed" is answered only after the rollback barrier is written, so a
late local commit is impossible. What can't be known stays undecided; nothing is guessed. If this never
runs, a half of a dead producer stays invisible.

    still ACTIVE                              only ROLLBACK is possible (R1)
    evidence row there                        COMMIT, late bodies with it
    no row: barrier written                   ROLLBACK
    no row: local transaction still running   undecided
    another database than the recorded one    undecided (R10)
    no resource recorded                      the group's checker, if this process has one
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from txsaga.engine.announce import Announcer
from txsaga.engine.case import Case
from txsaga.engine.decide import By, Decider
from txsaga.engine.hooks import EndHooks, request_for
from txsaga.engine.writing import Writing
from txsaga.errors import (
    ConfigError,
    EffectConflict,
    EvidenceMissing,
    InDoubt,
    ResourceUnknown,
    StoreError,
    TxSagaError,
)
from txsaga.model import facts
from txsaga.model.decision import Decision, LocalState
from txsaga.model.lifecycle import TxState
from txsaga.model.records import Doubt, End, HalfView, Outcome, Standing
from txsaga.ports.evidence import Evidence
from txsaga.ports.store import Store

logger = logging.getLogger("txsaga")

Checker = Callable[["Question"], "LocalState | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a checker is asked: what became of the local work of this transaction?"""

    txid: int
    id: str
    group: str
    key: str | None
    halves: tuple[HalfView, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known about a transaction."""

    state: LocalState
    remark: str
    bodies: Mapping[int, bytes] = field(default_factory=dict)
    found: TxState | None = None  # it holds for this state only: an owner may close meanwhile


class Settler:
    """Settles transactions by what can be known about them."""

    def __init__(
        self,
        store: Store,
        decider: Decider,
        writing: Writing,
        *,
        evidence: Callable[[str], Evidence],
        checkers: Mapping[str, Checker],
        hooks: EndHooks,
        announce: Announcer,
    ) -> None:
        self._store, self._decider, self._writing = store, decider, writing
        self._evidence, self._checkers, self._hooks = evidence, checkers, hooks
        self._announce = announce

    def settle(self, doubt: Doubt) -> Standing | None:
        """Decide a transaction as far as it can be known; None when it stays undecided."""
        case = Case(self._store, doubt)
        verdict = self._verdict(case)
        self._report(case, verdict)
        decision = verdict.state.decision
        if decision is None:
            return None
        if doubt.keyed:
            return self._decide_keyed(doubt, decision, verdict)
        answer = self._writing.decide(End(doubt.txid, doubt.group, doubt.token, decision, from_check=True))
        if isinstance(answer, TxSagaError):
            raise answer
        return answer

    def _report(self, case: Case, verdict: Verdict) -> None:
        """Log every answer but COMMIT, and tell the group's end hooks: a check's answer is an end."""
        doubt = case.doubt
        if verdict.state is not LocalState.COMMIT:
            logger.warning(
                "check of message %s, transaction %d: %s (%s)",
                case.message_id,
                doubt.txid,
                verdict.state,
                verdict.remark,
            )
        if self._hooks and self._hooks.hear(case.group):
            request = request_for(
                self._store,
                doubt.txid,
                case.halves,
                group=case.group,
                token=doubt.token,
                state=verdict.state,
                from_check=True,
                remark=verdict.remark,
            )
            self._hooks.tell(request)

    def _decide_keyed(self, doubt: Doubt, decision: Decision, verdict: Verdict) -> Standing | None:
        by = By(who="check-back", why=verdict.remark, from_check=True, found=verdict.found)
        try:
            return self._decider.decide(doubt.txid, decision, by, bodies=verdict.bodies)
        except EffectConflict as conflict:
            return self._decider.decide(doubt.txid, Decision.ROLLBACK, replace(by, why=str(conflict)))
        except InDoubt as overtaken:
            logger.info("%s", overtaken)
            return None

    def _verdict(self, case: Case) -> Verdict:
        doubt = case.doubt
        if not doubt.keyed:
            return self._closed(case, doubt.evidence)
        with self._store.ledgers.open() as ledger:
            life = ledger.lock(doubt.txid)
        if life is None:
            return self._closed(case, doubt.evidence)
        if life.state is TxState.ACTIVE:
            return Verdict(LocalState.ROLLBACK, "its owner never closed it", found=life.state)
        # The doubt may be older than the end that named the resource.
        return replace(self._closed(case, life.evidence or doubt.evidence), found=life.state)

    def _closed(self, case: Case, resource: int | None) -> Verdict:
        if resource is not None:
            return self._by_evidence(case, resource)
        return self._by_checker(case)

    def _by_evidence(self, case: Case, resource: int) -> Verdict:
        recorded = self._store.registry.resource_by_id(resource)
        try:
            evidence = self._evidence(recorded.name)
            if evidence.database != recorded.database:
                return Verdict(
                    LocalState.UNKNOWN, f"resource {recorded.name!r} leads to another database than recorded"
                )
            outcome = evidence.read(case.id) or self._fenced(evidence, case.doubt.txid, case.id)
        except (ConfigError, EvidenceMissing, ResourceUnknown, StoreError) as reason:
            return Verdict(LocalState.UNKNOWN, str(reason))
        if outcome is None:
            return Verdict(LocalState.UNKNOWN, "its local transaction is still running")
        if outcome.committed:
            return Verdict(LocalState.COMMIT, "the evidence is there", outcome.bodies)
        return Verdict(LocalState.ROLLBACK, "no evidence; the rollback barrier stands")

    def _fenced(self, evidence: Evidence, txid: int, transaction: str) -> Outcome | None:
        with self._announce.around(facts.Fencing, facts.Fenced, txid):
            return evidence.fence(transaction)

    def _by_checker(self, case: Case) -> Verdict:
        checker = self._checkers.get(case.group)
        if checker is None:
            return Verdict(LocalState.UNKNOWN, f"no live member of group {case.group!r} has a checker here")
        question = self._question(case)
        try:
            answer = LocalState(checker(question) or LocalState.UNKNOWN)
        except Exception as failure:  # noqa: BLE001  # a checker is the user's code: whatever it raises is UNKNOWN
            return Verdict(LocalState.UNKNOWN, f"the checker raised {type(failure).__name__}: {failure}")
        return Verdict(answer, f"the checker said {answer}")

    def _question(self, case: Case) -> Question:
        view = self._store.registry.transaction(case.doubt.txid)
        return Question(
            txid=case.doubt.txid,
            id=case.id,
            group=case.group,
            key=view.key if view else None,
            halves=case.halves,
        )
