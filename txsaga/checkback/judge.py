"""
What can be known about an undecided transaction: from its row first, then the evidence, then a checker's answer.

The judge decides nothing. It fences: "not committed" is returned only after the rollback barrier is written, so a late
local commit is impossible. What can't be known stays UNKNOWN; nothing is guessed. If this never runs, only the owner
can decide.

    still ACTIVE                              ROLLBACK: the only decision for others (R1)
    it voted yes for another store            UNKNOWN: that store decides, this check does not count (R15)
    evidence row found                        COMMIT, with its late bodies
    no row: barrier written                   ROLLBACK
    no row: local transaction still running   UNKNOWN, no answer
    the resource can't be reached, or is
    another database than the recorded one    UNKNOWN, no answer (R10)
    no resource recorded                      the answer of a checker, or of an operator
    no work outside of the store              ROLLBACK: only its owner could have decided COMMIT
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, NoReturn, TypeVar

from txsaga import errors
from txsaga.checkback.checkers import Checkers
from txsaga.checkback.doubt_context import DoubtContext, Seen
from txsaga.core import facts
from txsaga.core.announcer import Announcer
from txsaga.core.decision import Decision, LocalState
from txsaga.core.lifecycle import TxState
from txsaga.core.records import (
    NO_WORK_OUTSIDE,
    DecisionOutcome,
    Doubt,
    End,
    EvidenceOutcome,
    RegisteredResource,
    TxRecord,
)
from txsaga.core.timeboxed_calls import TimeboxedCalls
from txsaga.evidence.ports import Evidence
from txsaga.messages.decide import DecidedBy, Decider
from txsaga.messages.halves_writer import HalvesWriter

if TYPE_CHECKING:
    from txsaga.store.store import Store

logger = logging.getLogger("txsaga")

Answer = TypeVar("Answer")


class Basis(Enum):
    """What a verdict is based on."""

    OPEN = auto()  # its owner never closed it, or never decided it and nothing else can be known
    EVIDENCE = auto()  # the row or the barrier in the recorded database
    ANSWER = auto()  # the answer of a checker or an operator
    COORDINATOR = auto()  # it voted yes for another store, which decides it
    NO_ANSWER = auto()  # nothing could answer: such a check does not count
    LATER = auto()  # its database is asked once it has answered about others


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known about a transaction."""

    state: LocalState
    why: str
    basis: Basis
    bodies: Mapping[int, bytes] = field(default_factory=dict)
    found: TxState | None = None  # it holds for this state only: an owner may close meanwhile


AWAY = (
    errors.ConfigError,
    errors.EvidenceMissing,
    errors.ResourceUnknown,
    errors.StoreUnavailable,
    errors.UnknownTransaction,
)
"""The database can't be reached by anyone; a name that was never registered must not spoil other checks."""
UNCOUNTED = (Basis.NO_ANSWER, Basis.LATER, Basis.COORDINATOR)
BRIEF = 1.0
"""Seconds during which databases are asked repeatedly: including the last answer, well below a round's lease."""
UNREADABLE = (*AWAY, errors.StoreError)
"""No answer could be read."""


class Judge:
    """Finds out what became of transactions."""

    def __init__(
        self, store: Store, *, evidence: Callable[[str], Evidence], checkers: Checkers, announce: Announcer
    ) -> None:
        self._store, self._evidence, self._checkers, self._announce = store, evidence, checkers, announce
        self._calls = TimeboxedCalls()
        self._at_once: dict[int, int] = {}  # transactions per query, once a database has failed to answer
        self._recorded: dict[int, RegisteredResource] = {}  # what is registered under a number never changes

    def look(self, cases: Iterable[DoubtContext]) -> None:
        """Read the evidence of many transactions, together per database, as much as fits in a brief time."""
        until, by_resource = time.monotonic() + BRIEF, defaultdict[int, list[DoubtContext]](list)
        for case in cases:
            if case.doubt.evidence:
                by_resource[case.doubt.evidence].append(case)
        reading = [(each, asked, self._begun(each, self._portion(each, asked))) for each, asked in by_resource.items()]
        for resource, asked, read in reading:
            self._look_on(resource, asked, read, until)

    def _look_on(
        self,
        resource: int,
        asked: Sequence[DoubtContext],
        read: Callable[[], Mapping[str, EvidenceOutcome]],
        until: float,
    ) -> None:
        """Read a database's answers about its transactions: about fewer at once after it failed to answer."""
        while asked:
            portion = self._portion(resource, asked)
            unread = self._heard(resource, portion, read)
            asked = asked[len(portion) :]
            late = unread is None and time.monotonic() > until
            if late or unread is not None:
                for case in asked:
                    case.seen = Seen(resource, unread=unread or "its database was asked about others first", later=late)
                return
            read = self._begun(resource, self._portion(resource, asked))

    def _portion(self, resource: int, asked: Sequence[DoubtContext]) -> Sequence[DoubtContext]:
        return asked[: self._at_once.get(resource, len(asked))]

    def _heard(
        self, resource: int, portion: Sequence[DoubtContext], read: Callable[[], Mapping[str, EvidenceOutcome]]
    ) -> str | None:
        """Record one answer; return why there was none."""
        try:
            outcomes = read()
        except AWAY as reason:
            self._at_once[resource] = max(1, len(portion) // 2)  # with large bodies all of them may be too many
            for case in portion:
                case.seen = Seen(resource, unread=str(reason))
            return str(reason)
        except Exception:
            # One of them may be unreadable, or the user's engine raises some error: read each by itself.
            logger.warning("evidence in resource %d is read one by one", resource, exc_info=True)
            return None
        for case in portion:
            case.seen = Seen(resource, outcomes.get(case.id))
        if resource in self._at_once:
            grown = len(portion) + max(1, len(portion) // 8)  # slowly: what was too much will soon be too much again
            self._at_once[resource] = max(self._at_once[resource], grown)
        return None

    def _begun(self, resource: int, asked: Sequence[DoubtContext]) -> Callable[[], Mapping[str, EvidenceOutcome]]:
        """Start to read: several silent databases are waited for at the same time."""
        names = [case.id for case in asked]
        try:
            return self._begin(resource, lambda found: found.read_many(names))
        except errors.TxSagaError as reason:
            return partial(_raise, reason)

    def fences_at_once(self, resource: int) -> int:
        """Return how many transactions the database of a resource can fence at the same time."""
        try:
            return self._reach(resource, lambda found: found.at_once)
        except UNREADABLE:
            return 1

    def know(self, case: DoubtContext, *, fence: bool = True) -> Verdict:
        """Return what row and evidence show; UNKNOWN by ANSWER if only a checker knows. `fence=False` only reads."""
        doubt = case.doubt
        life = self._life(doubt.txid) if doubt.keyed else None
        if life is None:
            return self._closed(case, doubt.evidence, fence)
        if life.state is TxState.ACTIVE:
            return Verdict(LocalState.ROLLBACK, "its owner never closed it", Basis.OPEN, found=life.state)
        if life.voted:
            why = f"it voted yes for store {life.coordinator}, which decides it"
            return Verdict(LocalState.UNKNOWN, why, Basis.COORDINATOR, found=life.state)
        # The doubt may be older than the end that named the resource.
        recorded = doubt.evidence if life.evidence is None else life.evidence
        return replace(self._closed(case, recorded, fence), found=life.state)

    def judge(self, case: DoubtContext) -> Verdict:
        """Return what row and evidence show, or else the checker's answer."""
        verdict = self.know(case)
        return self._by_checker(case, verdict) if verdict.basis is Basis.ANSWER else verdict

    def _life(self, txid: int) -> TxRecord | None:
        with self._store.ledgers.open() as ledger:
            return ledger.lock(txid)

    def _closed(self, case: DoubtContext, resource: int | None, fence: bool) -> Verdict:
        if resource is None:
            return Verdict(
                LocalState.UNKNOWN, "it recorded no evidence: only a checker, or an operator, knows", Basis.ANSWER
            )
        if resource == NO_WORK_OUTSIDE:
            return Verdict(LocalState.ROLLBACK, "its owner never decided it", Basis.OPEN)
        seen = case.seen if case.seen is not None and case.seen.resource == resource else None
        if seen is not None and seen.unread is not None:
            return Verdict(LocalState.UNKNOWN, seen.unread, Basis.LATER if seen.later else Basis.NO_ANSWER)
        try:
            outcome = self._reach(resource, lambda found: found.read(case.id)) if seen is None else seen.outcome
            if outcome is None and not fence:
                return Verdict(LocalState.UNKNOWN, "there is no evidence row", Basis.EVIDENCE)
            outcome = outcome or self._fenced(resource, case)
        except UNREADABLE as reason:
            return _no_answer(str(reason))
        except OSError as away:  # from the user's own connect function
            return _no_answer(f"{type(away).__name__}: {away}")
        if outcome is None:
            return _no_answer("its local transaction is still running")
        if outcome.committed:
            return Verdict(LocalState.COMMIT, "the evidence row exists", Basis.EVIDENCE, outcome.bodies)
        return Verdict(LocalState.ROLLBACK, "no evidence row; the abort marker is in place", Basis.EVIDENCE)

    def _reach(self, resource: int, ask: Callable[[Evidence], Answer]) -> Answer:
        return self._begin(resource, ask)()

    def _begin(self, resource: int, ask: Callable[[Evidence], Answer]) -> Callable[[], Answer]:
        if (recorded := self._recorded.get(resource)) is None:
            recorded = self._recorded[resource] = self._store.registry.resource_by_id(resource)

        def asked() -> Answer:
            evidence = self._evidence(recorded.name)
            if evidence.database != recorded.database:
                raise errors.EvidenceMissing(f"resource {recorded.name!r} points to another database than recorded")
            return ask(evidence)

        return self._calls.begin(f"resource {recorded.name!r}", asked)

    def _fenced(self, resource: int, case: DoubtContext) -> EvidenceOutcome | None:
        with self._announce.around(facts.Fencing, case.doubt.txid):
            return self._reach(resource, lambda found: found.fence(case.id))

    def _by_checker(self, case: DoubtContext, verdict: Verdict) -> Verdict:
        if not self._checkers.knows(case.group):
            why = f"no live member of group {case.group!r} has a checker here"
            return replace(verdict, why=why, basis=Basis.NO_ANSWER)
        answer, why = self._checkers.say(case)
        return replace(verdict, state=answer, why=why)


def _no_answer(why: str) -> Verdict:
    return Verdict(LocalState.UNKNOWN, why, Basis.NO_ANSWER)


def _raise(reason: Exception) -> NoReturn:
    raise reason


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of a check: the final decision, or why there is none."""

    standing: DecisionOutcome | None = None
    why: str
    counted: bool = False  # there was an answer, and it was UNKNOWN

    @property
    def decision(self) -> Decision | None:
        """The final decision, if there is one."""
        return None if self.standing is None else self.standing.decision


class Settler:
    """Settles single transactions: what can be known is written, through the only function that decides.

    What can't be known stays undecided. So does a COMMIT based on evidence when its home effects can't be applied: it
    is never turned into its opposite.
    """

    def __init__(self, store: Store, judge: Judge, decider: Decider, writing: HalvesWriter) -> None:
        self._store, self.judge, self._decider, self._writing = store, judge, decider, writing

    def check(self, doubt: Doubt) -> CheckResult:
        """Decide a transaction as far as it can be known, and return why it stays undecided."""
        case = DoubtContext(self._store, doubt)
        return self.conclude(case, self.judge.judge(case), "check-back")

    def conclude(self, case: DoubtContext, verdict: Verdict, who: str) -> CheckResult:
        """Report a verdict, and write it if it decides."""
        self.report(case, verdict)
        if (decision := verdict.state.decision) is None:
            return CheckResult(why=verdict.why, counted=verdict.basis not in UNCOUNTED)
        by = DecidedBy(who=who, why=verdict.why, from_check=True, found=verdict.found)
        try:
            return CheckResult(standing=self.written(case, decision, by, verdict), why=verdict.why)
        except (errors.EffectConflict, errors.InDoubt) as reason:
            return CheckResult(why=str(reason), counted=True)

    def write(
        self, case: DoubtContext, decision: Decision, by: DecidedBy, bodies: Mapping[int, bytes]
    ) -> DecisionOutcome:
        """Write a decision that is not the owner's; return the final decision."""
        doubt = case.doubt
        if doubt.keyed:
            return self._decider.decide(doubt.txid, decision, by, bodies=bodies)
        return self._writing.decide(End(doubt.txid, doubt.group, doubt.token, decision, from_check=True))

    def written(self, case: DoubtContext, decision: Decision, by: DecidedBy, verdict: Verdict) -> DecisionOutcome:
        """Write a verdict; roll back instead if only a checker answered and home effects forbid the commit."""
        try:
            return self.write(case, decision, by, verdict.bodies)
        except errors.EffectConflict as conflict:
            if verdict.basis is Basis.EVIDENCE:
                raise  # the local work is committed: for an operator to handle
            return self.write(case, Decision.ROLLBACK, replace(by, why=str(conflict)), {})

    def report(self, case: DoubtContext, verdict: Verdict) -> None:
        """Log every answer but COMMIT."""
        doubt = case.doubt
        if verdict.state is not LocalState.COMMIT:
            logger.warning(
                "check-back found %s for transaction %d (message %s): %s",
                "NO_ANSWER" if verdict.basis is Basis.NO_ANSWER else verdict.state,
                doubt.txid,
                case.message_id,
                verdict.why,
                extra={"txid": doubt.txid, "message_id": case.message_id},
            )
