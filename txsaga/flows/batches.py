"""
Batches of calls to the store about branches and sagas, those of many transactions in one durable step.

Outcomes of branches are collected and written after a short delay: no caller waits for one, so it adds no row to any
decision. If outcomes are lost with the process, recovery asks the resources again and finds the branches finished.

If a batch is never written, no step that waits for it has run; a decision that was not written leaves its saga to the
next driver, which rolls it back; after a mark that was not written the next driver asks the resource again.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from txsaga.core import facts
from txsaga.core.announcer import Announcer
from txsaga.core.decision import Decision
from txsaga.core.facts import AFTER, Fact
from txsaga.core.forking import this_process
from txsaga.core.records import TxRecord
from txsaga.errors import TxSagaError
from txsaga.flows.branch import EVENT_OF, BranchEvent, BranchId, Finish
from txsaga.flows.calls import (
    Answer,
    BeginBranches,
    BranchOutcome,
    Call,
    DecisionRequest,
    Mark,
    OpenSaga,
    RecordStep,
    ReleaseSaga,
    SagaCall,
    Settle,
)
from txsaga.resources.participant import Traced

logger = logging.getLogger("txsaga")

Asked = TypeVar("Asked")

LINGER = 0.25
"""Seconds that an outcome waits for others."""
MOST = 10_000
"""Outcomes that may wait; older ones are left to recovery."""
AT_ONCE = 500
PLAIN_EVENT = {Decision.COMMIT: BranchEvent.COMMIT, Decision.ROLLBACK: BranchEvent.ROLL_BACK}


class OutcomeWriter:
    """Outcomes that wait to be written."""

    def __init__(self, write: Callable[[Sequence[BranchOutcome]], object]) -> None:
        self._write = write
        self._timer: threading.Timer | None
        self.start_anew()

    def add(self, notes: Iterable[BranchOutcome]) -> None:
        """Queue outcomes to be written with others."""
        if self._process != this_process():
            self.start_anew()  # a forked child must not write its parent's outcomes
        self._waiting.extend(notes)
        if self._timer is None and self._waiting:
            self._timer = threading.Timer(LINGER, self._in_time)
            self._timer.name, self._timer.daemon = "txsaga-notes", True
            self._timer.start()

    def flush(self) -> None:
        """Write what waits by now; what can't be written is left to recovery."""
        with self._turn:
            left = len(self._waiting)
            while left > 0 and (waiting := self._taken(min(left, AT_ONCE))):
                left -= len(waiting)
                try:
                    self._write(waiting)
                except TxSagaError as silent:
                    logger.warning("what became of %d branches was not noted, recovery looks: %s", len(waiting), silent)

    def close(self) -> None:
        """Write the outcomes that wait, without waiting for more."""
        timer = self._timer
        if timer is not None:
            timer.cancel()
        self.flush()

    def _in_time(self) -> None:
        self._timer = None
        try:
            self.flush()
        except Exception:  # outermost frame of its thread: recovery finds the branches finished
            logger.exception("what became of branches was not noted")

    def _taken(self, most: int) -> list[BranchOutcome]:
        found: list[BranchOutcome] = []
        try:
            while len(found) < most:
                found.append(self._waiting.popleft())
        except IndexError:
            pass
        return found

    def start_anew(self) -> None:
        """Discard what waits, as a forked child must: outcomes and writing thread are its parent's."""
        self._waiting: deque[BranchOutcome] = deque(maxlen=MOST)
        self._timer = None
        self._turn = threading.Lock()
        self._process = this_process()


def noted(txid: int, branch: BranchId, decision: Decision, finish: Finish, participant: object = None) -> BranchOutcome:
    """Return the outcome of a second phase; on a mismatch, with the place of its traces."""
    event = EVENT_OF.get(finish, PLAIN_EVENT[decision])
    why = "" if finish is Finish.DONE else f"found {finish.name.lower()} while {decision.name} was decided"
    if why and isinstance(participant, Traced):
        why = f"{why}; look at {participant.traces(branch, finish)}"
    return BranchOutcome(txid, branch.number, branch.attempt, event, why)


class AnnouncedBatches(Generic[Asked]):
    """Writes batches of calls, with facts before and after each."""

    def __init__(
        self,
        write: Callable[[Sequence[Asked]], Sequence[Answer | TxSagaError]],
        facts_of: Callable[[Sequence[Asked], tuple[int, ...]], Mapping[type[Fact], tuple[int, ...]]],
        announce: Announcer,
    ) -> None:
        self._write, self._facts_of, self._announce = write, facts_of, announce

    def __call__(self, batch: Sequence[Asked]) -> Sequence[Answer | TxSagaError]:
        """Write a batch; the answers are in the order of the calls."""
        if not self._announce:
            return self._write(batch)
        for kind, txids in self._facts_of(batch, ()).items():
            self._announce(kind(txids))
        answers = self._write(batch)
        done = [call for call, answer in zip(batch, answers, strict=True) if not isinstance(answer, TxSagaError)]
        begun = tuple(each.txid for each in answers if isinstance(each, TxRecord))
        for kind, txids in self._facts_of(done, begun).items():
            self._announce(AFTER[kind](txids))
        return answers


def of_branches(batch: Sequence[Call], begun: tuple[int, ...]) -> Mapping[type[Fact], tuple[int, ...]]:
    """Return what calls about branches do, to which transactions; those just begun have their numbers only now."""
    words = [call for call in batch if isinstance(call, DecisionRequest)]
    numbers: dict[type[Fact], tuple[int, ...]] = {
        facts.Ending: tuple(word.life.txid for word in words if word.decision is None),
        facts.Deciding: tuple(word.life.txid for word in words if word.decision is not None),
        facts.Noting: tuple(dict.fromkeys(call.txid for call in batch if isinstance(call, BranchOutcome))),
    }
    steps = {kind: txids for kind, txids in numbers.items() if txids}
    return {facts.Naming: begun, **steps} if any(isinstance(call, BeginBranches) for call in batch) else steps


def of_sagas(batch: Sequence[SagaCall], begun: tuple[int, ...]) -> Mapping[type[Fact], tuple[int, ...]]:
    """Return what calls about sagas do, to which transactions."""
    found: dict[type[Fact], list[int]] = {}
    for call in batch:
        match call:
            case OpenSaga():
                found.setdefault(facts.Recording, []).extend(begun)
                begun = ()
            case RecordStep():
                found.setdefault(facts.Recording, []).append(call.life.txid)
            case Settle():
                found.setdefault(facts.Deciding, []).append(call.word.life.txid)
            case ReleaseSaga(stalled=True):
                found.setdefault(facts.Stalling, []).append(call.txid)
            case Mark() | _:
                found.setdefault(facts.Marking, []).append(call.txid)
    return {kind: tuple(dict.fromkeys(txids)) for kind, txids in found.items()}
