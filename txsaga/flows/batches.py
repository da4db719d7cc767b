"""
Batches of requests about branches, steps and sagas, those of many transactions in one durable step.

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

from txsaga.core import facts
from txsaga.core.announcer import Announcer
from txsaga.core.decision import Decision
from txsaga.core.facts import AFTER, Fact
from txsaga.core.forking import this_process
from txsaga.core.records import TxRecord
from txsaga.errors import TxSagaError
from txsaga.flows.branch import EVENT_OF, BranchEvent, BranchId, Finish
from txsaga.flows.requests import Answer, Begin, BranchOutcome, Decide, RecordSteps, Release, Request
from txsaga.resources.participant import Traced

logger = logging.getLogger("txsaga")

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
            for _ in range(0, len(self._waiting), AT_ONCE):
                waiting = [self._waiting.popleft() for _ in range(min(len(self._waiting), AT_ONCE))]
                try:
                    self._write(waiting)
                except TxSagaError as silent:
                    logger.warning("outcomes of %d branches not recorded, recovery looks: %s", len(waiting), silent)

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
            logger.exception("the outcomes of branches were not recorded; recovery checks them")

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
        why = f"{why}; see {participant.traces(branch, finish)}"
    return BranchOutcome(txid, branch.number, branch.attempt, event, why)


class AnnouncedBatches:
    """Writes batches of requests, with facts before and after each."""

    def __init__(
        self, write: Callable[[Sequence[Request]], Sequence[Answer | TxSagaError]], announce: Announcer
    ) -> None:
        self._write, self._announce = write, announce

    def __call__(self, batch: Sequence[Request]) -> Sequence[Answer | TxSagaError]:
        """Write a batch; the answers are in the order of the requests."""
        if not self._announce:
            return self._write(batch)
        for kind, txids in _facts_of((request, None) for request in batch).items():
            self._announce(kind(txids))
        answers = self._write(batch)
        told = zip(batch, answers, strict=True)
        done = [(request, answer) for request, answer in told if not isinstance(answer, TxSagaError)]
        for kind, txids in _facts_of(done).items():
            self._announce(AFTER[kind](txids))
        return answers


def _facts_of(batch: Iterable[tuple[Request, Answer]]) -> Mapping[type[Fact], tuple[int, ...]]:
    """Return what requests do, to which transactions; one that begins has its number only in its answer."""
    found: dict[type[Fact], list[int]] = {}
    for request, answer in batch:
        match request:
            case Begin():
                begun = [answer.txid] if isinstance(answer, TxRecord) else []
                found.setdefault(facts.Recording if request.steps else facts.Naming, []).extend(begun)
            case RecordSteps():
                found.setdefault(facts.Recording, []).append(request.life.txid)
            case Decide():
                kind = facts.Ending if request.decision is None else facts.Deciding
                found.setdefault(kind, []).append(request.life.txid)
            case BranchOutcome():
                found.setdefault(facts.Noting, []).append(request.txid)
            case Release(stalled=True):
                found.setdefault(facts.Stalling, []).append(request.txid)
            case _:
                found.setdefault(facts.Marking, []).append(request.txid)
    return {kind: tuple(dict.fromkeys(txids)) for kind, txids in found.items()}
