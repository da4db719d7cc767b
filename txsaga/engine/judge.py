"""
What can be known about an undecided transaction: its row first, then the evidence, then the word of a checker.

It decides nothing. It fences: "not committed" is said only behind the rollback barrier, so a late local commit is
impossible. What can't be known stays UNKNOWN; nothing is guessed. If this never runs, nobody but the owner can
decide.

    still ACTIVE                              ROLLBACK: others may do nothing else (R1)
    evidence row there                        COMMIT, late bodies with it
    no row: barrier written                   ROLLBACK
    no row: local transaction still running   UNKNOWN, nobody could answer
    the resource can't be reached, or is
    another database than the recorded one    UNKNOWN, nobody could answer (R10)
    no resource recorded                      the word of a checker, or of a person
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from txsaga.engine.announce import Announcer
from txsaga.engine.case import Case
from txsaga.errors import ConfigError, EvidenceMissing, ResourceUnknown, StoreError
from txsaga.model import facts
from txsaga.model.decision import LocalState
from txsaga.model.lifecycle import TxState
from txsaga.model.records import HalfView, Life, Outcome
from txsaga.ports.evidence import Evidence
from txsaga.ports.store import Store

Checker = Callable[["Question"], "LocalState | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a checker is asked: what became of the local work of this transaction?"""

    txid: int
    id: str
    group: str
    key: str | None
    halves: tuple[HalfView, ...]


class Basis(Enum):
    """What a verdict rests on."""

    OPEN = auto()  # its owner never closed it
    EVIDENCE = auto()  # the row or the barrier in the recorded database
    WORD = auto()  # what a checker or a person says
    NOBODY = auto()  # nobody was there to answer: such a check does not count


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known about a transaction."""

    state: LocalState
    why: str
    basis: Basis
    bodies: Mapping[int, bytes] = field(default_factory=dict)
    found: TxState | None = None  # it holds for this state only: an owner may close meanwhile


class Judge:
    """Finds out what became of transactions."""

    def __init__(
        self,
        store: Store,
        *,
        evidence: Callable[[str], Evidence],
        checkers: Mapping[str, Checker],
        announce: Announcer,
    ) -> None:
        self._store, self._evidence, self._checkers, self._announce = store, evidence, checkers, announce

    def know(self, case: Case, *, fence: bool = True) -> Verdict:
        """Say what row and evidence tell; where only a word can, UNKNOWN by WORD. `fence=False` only looks."""
        doubt = case.doubt
        life = self._life(doubt.txid) if doubt.keyed else None
        if life is None:
            return self._closed(case, doubt.evidence, fence)
        if life.state is TxState.ACTIVE:
            return Verdict(LocalState.ROLLBACK, "its owner never closed it", Basis.OPEN, found=life.state)
        # The doubt may be older than the end that named the resource.
        return replace(self._closed(case, life.evidence or doubt.evidence, fence), found=life.state)

    def judge(self, case: Case) -> Verdict:
        """Say what row and evidence tell, or else the checker."""
        verdict = self.know(case)
        return self._by_checker(case, verdict) if verdict.basis is Basis.WORD else verdict

    def _life(self, txid: int) -> Life | None:
        with self._store.ledgers.open() as ledger:
            return ledger.lock(txid)

    def _closed(self, case: Case, resource: int | None, fence: bool) -> Verdict:
        if resource is None:
            return Verdict(LocalState.UNKNOWN, "no resource is recorded", Basis.WORD)
        recorded = self._store.registry.resource_by_id(resource)
        try:
            evidence = self._evidence(recorded.name)
            if evidence.database != recorded.database:
                return _nobody(f"resource {recorded.name!r} leads to another database than recorded")
            outcome = evidence.read(case.id)
            if outcome is None and not fence:
                return Verdict(LocalState.UNKNOWN, "there is no evidence", Basis.EVIDENCE)
            outcome = outcome or self._fenced(evidence, case)
        except (ConfigError, EvidenceMissing, ResourceUnknown, StoreError) as reason:
            return _nobody(str(reason))
        if outcome is None:
            return _nobody("its local transaction is still running")
        if outcome.committed:
            return Verdict(LocalState.COMMIT, "the evidence is there", Basis.EVIDENCE, outcome.bodies)
        return Verdict(LocalState.ROLLBACK, "no evidence; the rollback barrier stands", Basis.EVIDENCE)

    def _fenced(self, evidence: Evidence, case: Case) -> Outcome | None:
        with self._announce.around(facts.Fencing, case.doubt.txid):
            return evidence.fence(case.id)

    def _by_checker(self, case: Case, verdict: Verdict) -> Verdict:
        checker = self._checkers.get(case.group)
        if checker is None:
            why = f"no live member of group {case.group!r} has a checker here"
            return replace(verdict, why=why, basis=Basis.NOBODY)
        question = self._question(case)
        try:
            answer = LocalState(checker(question) or LocalState.UNKNOWN)
        except Exception as failure:  # noqa: BLE001  # a checker is the user's code: whatever it raises is UNKNOWN
            return replace(verdict, why=f"the checker raised {type(failure).__name__}: {failure}")
        return replace(verdict, state=answer, why=f"the checker said {answer}")

    def _question(self, case: Case) -> Question:
        view = self._store.registry.transaction(case.doubt.txid)
        return Question(
            txid=case.doubt.txid,
            id=case.id,
            group=case.group,
            key=view.key if view else None,
            halves=case.halves,
        )


def _nobody(why: str) -> Verdict:
    return Verdict(LocalState.UNKNOWN, why, Basis.NOBODY)
