"""
Answering: the questions that check-back puts to this member, and what its checkers say.

Checkers run in threads of their own, as many as the user says; one that hangs keeps one of them. An answer is processed
like any end: the decision is written first, through the batches that every end goes through, and then the question is
taken away. If this dies in between, the decision stands and the next round takes the question away. A question that is
not answered in its time counts as UNKNOWN; an answer that comes later is an end all the same. That time runs from when
a question is taken up, so no more are taken up than begin soon: what waits for busy threads here would be counted as
not answered, and asked again.
"""

from __future__ import annotations

import logging
import threading
import time
from queue import Empty, SimpleQueue

from txsaga.engine.case import Case
from txsaga.engine.decide import By
from txsaga.engine.judge import Basis, Verdict
from txsaga.engine.kernel import Kernel
from txsaga.errors import DecidedOtherwise, TxSagaError
from txsaga.model import facts
from txsaga.model.asking import Answer, Asked
from txsaga.model.decision import LocalState
from txsaga.model.lifecycle import TxState
from txsaga.model.records import End

logger = logging.getLogger("txsaga")

THREADS = 4
MOST = 2_000
"""Questions that are taken up and not answered yet."""
A_MOMENT = 0.02
SOON = 0.5
"""Seconds that a question may wait here for a thread."""


class Answering:
    """Takes up questions, has them answered, and takes them away."""

    name = "answering"
    pause, rest = 0.05, 1.0

    def __init__(self, kernel: Kernel, threads: int = THREADS) -> None:
        self._kernel, self._threads = kernel, threads
        self._questions: SimpleQueue[tuple[float, Asked]] = SimpleQueue()
        self._answers: SimpleQueue[Answer] = SimpleQueue()
        self._under_way = 0
        self._started = 0
        self._room = threads  # grows while checkers are quick
        self._waited = 0.0  # what the last question waited for its thread

    def run_once(self) -> int:
        """Take up what is asked and take away what is answered; return how many were either."""
        if not self._kernel.checkers.by_id:
            return 0
        taken = self._take_up()
        return taken + self._take_away() + self._under_way

    def _take_up(self) -> int:
        free = self._room - self._under_way
        if free <= 0:
            return 0
        with self._kernel.announce.around(facts.Hearing):
            taken = self._kernel.store.questions.take(self._kernel.member, free)
        self._under_way += len(taken)
        for asked in taken:
            self._questions.put((time.monotonic(), asked))
        while taken and self._started < self._threads:
            self._started += 1
            threading.Thread(target=self._work, name=f"txsaga-checker-{self._started}", daemon=True).start()
        return len(taken)

    def _take_away(self) -> int:
        if not self._under_way:
            return 0
        answers = self._drained()
        if answers:
            self._under_way -= len(answers)
            quick = self._waited < SOON
            self._room = min(self._room + len(answers), MOST) if quick else max(self._room // 2, self._threads)
            with self._kernel.announce.around(facts.Answering, *(answer.txid for answer in answers)):
                self._kernel.store.questions.answered(self._kernel.member, answers)
        return len(answers)

    def _drained(self) -> list[Answer]:
        answers = []
        try:
            answers.append(self._answers.get(timeout=A_MOMENT))
            while True:
                answers.append(self._answers.get_nowait())
        except Empty:
            return answers

    def _work(self) -> None:
        while True:
            since, asked = self._questions.get()
            self._waited = time.monotonic() - since
            txid = asked.doubt.txid
            try:
                self._answer(asked)
            except Exception as failure:
                logger.exception("the answer for transaction %d failed", txid, extra={"txid": txid})
                self._say(txid, LocalState.UNKNOWN, f"{type(failure).__name__}: {failure}")

    def _say(self, txid: int, state: LocalState, why: str) -> None:
        self._answers.put(Answer(txid, state, why))

    def _answer(self, asked: Asked) -> None:
        doubt = asked.doubt
        group = self._kernel.checkers.by_id.get(doubt.group)
        case = Case(self._kernel.store, doubt, group, asked.halves or None)
        state, why = self._kernel.checkers.say(case, asked.key)
        self._kernel.settler.report(case, state, why)
        decision = state.decision
        if decision is None:
            self._say(doubt.txid, state, why)
        elif doubt.keyed:
            self._say(doubt.txid, *self._decided(case, Verdict(state, why, Basis.WORD, found=TxState.ENDED)))
        else:
            end = End(doubt.txid, doubt.group, doubt.token, decision, from_check=True)
            done = self._kernel.decides.submit(end)
            done.add_done_callback(lambda _: self._say(doubt.txid, *_stands(done.exception(), state, why)))

    def _decided(self, case: Case, verdict: Verdict) -> tuple[LocalState, str]:
        decision, why = verdict.state.decision, verdict.why
        assert decision is not None
        by = By(who=f"checker {self._kernel.member}", why=why, from_check=True, found=verdict.found)
        try:
            standing = self._kernel.settler.written(case, decision, by, verdict)
        except TxSagaError as failure:
            return LocalState.UNKNOWN, f"{why}, but it could not be decided: {failure}"
        self._kernel.tell_decided()
        return LocalState[standing.decision.name], why


def _stands(error: BaseException | None, state: LocalState, why: str) -> tuple[LocalState, str]:
    """Say what an end came to; whatever stands, the transaction is decided."""
    if error is None or isinstance(error, DecidedOtherwise):
        return state, why
    return LocalState.UNKNOWN, f"{why}, but it could not be decided: {error}"
