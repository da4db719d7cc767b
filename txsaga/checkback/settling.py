"""
Settling one undecided transaction: what can be known is written, through the only function that decides.

Check-back, the end of a block and the next owner of a key all use it; an operator uses `by_hand`. What can't be known
stays undecided. A COMMIT based on evidence is never turned into its opposite: when its home effects can't be applied it
stays undecided, with the reason. If this never runs, a half message of a dead producer stays invisible.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from txsaga.checkback.checkers import Checker, Question
from txsaga.checkback.doubt_context import DoubtContext
from txsaga.checkback.judge import UNCOUNTED, Basis, Judge, Verdict
from txsaga.core.decision import Decision, LocalState
from txsaga.core.records import DecisionOutcome, Doubt, End
from txsaga.errors import EffectConflict, InDoubt
from txsaga.messages.decide import DecidedBy, Decider
from txsaga.messages.end_hooks import EndHooks
from txsaga.messages.halves_writer import HalvesWriter

if TYPE_CHECKING:
    from txsaga.store.store import Store


__all__ = ["Checked", "Checker", "Question", "Settler"]

logger = logging.getLogger("txsaga")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The result of a check: the final decision, or why there is none."""

    standing: DecisionOutcome | None
    why: str
    counted: bool = True  # there was an answer


class Settler:
    """Settles transactions by what can be known about them."""

    def __init__(self, store: Store, judge: Judge, decider: Decider, writing: HalvesWriter, hooks: EndHooks) -> None:
        self._store, self.judge, self._decider, self._writing, self._hooks = store, judge, decider, writing, hooks

    def settle(self, doubt: Doubt) -> DecisionOutcome | None:
        """Decide a transaction as far as it can be known; None when it stays undecided."""
        return self.check(doubt).standing

    def check(self, doubt: Doubt) -> Checked:
        """Decide a transaction as far as it can be known, and return why it stays undecided."""
        case = DoubtContext(self._store, doubt)
        verdict = self.judge.judge(case)
        self.report(case, verdict.state, verdict.why)
        decision = verdict.state.decision
        if decision is None:
            return Checked(standing=None, why=verdict.why, counted=verdict.basis not in UNCOUNTED)
        by = DecidedBy(who="check-back", why=verdict.why, from_check=True, found=verdict.found)
        try:
            return Checked(standing=self.written(case, decision, by, verdict), why=verdict.why)
        except (EffectConflict, InDoubt) as reason:
            return Checked(standing=None, why=str(reason))

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
        except EffectConflict as conflict:
            if verdict.basis is Basis.EVIDENCE:
                raise  # the local work is committed: for an operator to handle
            return self.write(case, Decision.ROLLBACK, replace(by, why=str(conflict)), {})

    def report(self, case: DoubtContext, state: LocalState, why: str) -> None:
        """Log every answer but COMMIT, and notify the group's end hooks: a check's answer is an end."""
        doubt = case.doubt
        if state is not LocalState.COMMIT:
            logger.warning(
                "check of message %s, transaction %d: %s (%s)",
                case.message_id,
                doubt.txid,
                state,
                why,
                extra={"txid": doubt.txid, "message_id": case.message_id},
            )
        if self._hooks and self._hooks.hear(case.group):
            self._hooks.tell(case.request(state, why, from_check=True))
