"""
Checking one transaction now, as a round of check-back would: the evidence first, then a checker.

For a caller that waits for it and knows its checker. A transaction that is young, in progress, or of a live run is not
checked yet. One that is still open is left alone: only a round may treat it as abandoned, since it knows the owner's
last heartbeat. An existing decision is the answer. If this is never called, the engine's own rounds check in time.
"""

from __future__ import annotations

from dataclasses import replace

from txsaga.checkback.checkers import Checker, ask, question_about
from txsaga.checkback.doubt_context import DoubtContext
from txsaga.checkback.judge import Basis, CheckResult
from txsaga.checkback.profile import CheckProfile
from txsaga.checkback.round import LIVES, SILENT, state_of_run
from txsaga.checkback.runs import RunState
from txsaga.core.kernel import Kernel
from txsaga.core.lifecycle import TxState
from txsaga.core.records import DecisionOutcome, Doubt
from txsaga.errors import ConfigError, EvidenceMissing, ResourceUnknown, StoreError, UnknownTransaction
from txsaga.inspect.timeline_steps import Looked
from txsaga.inspect.trace import Trace

YOUNG = "it changed seconds ago, or a process that works on it is alive; try again later"
SENSOR = "check-back of a sensor"
"""Who decided, in the audit row."""


class OneCheck:
    """Checks of single transactions."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._store = kernel, kernel.store

    def ask(self, txid: int, checker: Checker | None = None, *, who: str = SENSOR) -> CheckResult:
        """Settle a transaction as far as it can be known; `checker` is asked where only a checker knows."""
        if (stands := self._store.overview.decisions([txid]).get(txid)) is not None:
            return CheckResult(standing=DecisionOutcome(txid, stands, False), why="it is decided")
        if (doubt := self._store.doubts.of(txid)) is None:
            raise UnknownTransaction(f"transaction {txid} is not in this store")
        if rest := self._rest(doubt):
            return CheckResult(why=rest)
        case = DoubtContext(self._store, doubt)
        verdict = self._kernel.settler.judge.know(case, fence=False)
        if verdict.basis is Basis.OPEN and verdict.found is TxState.ACTIVE:
            return CheckResult(why="it is still open")
        verdict = self._kernel.settler.judge.know(case)
        if verdict.basis is Basis.ANSWER and checker is not None:
            answer, why = ask(checker, question_about(case))
            verdict = replace(verdict, state=answer, why=why)
        if verdict.basis is Basis.OPEN and verdict.found is TxState.ACTIVE:  # its owner took it over meanwhile
            self._kernel.settler.report(case, verdict)
            return CheckResult(why=verdict.why, counted=True)
        return self._kernel.settler.conclude(case, verdict, who)

    def _rest(self, doubt: Doubt) -> str | None:
        """Return why it must not be checked yet: live work is not fenced."""
        run = state_of_run(self._kernel, doubt)
        if run is not RunState.OVER:
            return LIVES if run is RunState.ALIVE else SILENT
        view = None if doubt.keyed else self._store.overview.transaction(doubt.txid)
        if view is not None and view.due is not None:
            return f"it is a delayed message, due at {view.due.isoformat(sep=' ', timespec='seconds')}"
        if self._store.doubts.rests(doubt.txid, CheckProfile().min_age):
            return YOUNG
        return None


def look(kernel: Kernel, trace: Trace) -> Looked | None:
    """Return what the evidence of a transaction's local work shows; None where none is recorded."""
    if (recorded := trace.resource) is None:
        return None
    try:
        _, evidence = kernel.evidence(recorded.name)
        if evidence.database != recorded.database:
            return Looked(committed=None, why=f"{recorded.name!r} points to another database than the recorded one")
        outcome = evidence.read(kernel.store.registry.identity.transaction(trace.txid))
    except (ConfigError, EvidenceMissing, ResourceUnknown, StoreError) as reason:
        return Looked(committed=None, why=str(reason))
    if outcome is None:
        return Looked(committed=None, why="there is no evidence row and no abort marker yet")
    return Looked(
        committed=outcome.committed, why=f"the {'evidence row' if outcome.committed else 'abort marker'} exists"
    )
