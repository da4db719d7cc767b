"""
Answering: the questions that check-back puts to this member, and what its checkers say.

Checkers run in threads of their own, as many as the user says; one that hangs keeps one of them. An answer is processed
like any end: the decision is written first, through the batches that every end goes through, and then the question is
taken away. If this dies in between, the decision stands, and a round takes the question away when its time is over or
this member's lease is. A question that is not answered in its time counts as UNKNOWN; an answer that comes later is an
end all the same. That time runs from when a question is taken up, so no more are taken up than begin soon. What waits
here for a thread until half of its time is over is given back and does not count: no checker has seen it.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future
from dataclasses import replace
from queue import Empty, SimpleQueue

from txsaga.engine.case import Case
from txsaga.engine.decide import By
from txsaga.engine.judge import Basis, Verdict
from txsaga.engine.kernel import Kernel
from txsaga.engine.pace import Pace
from txsaga.engine.taken import Room, Taken
from txsaga.errors import DecidedOtherwise, InDoubt, TxSagaError
from txsaga.model import facts
from txsaga.model.asking import Answer, Asked
from txsaga.model.decision import LocalState
from txsaga.model.lifecycle import TxState
from txsaga.model.records import End, Standing

logger = logging.getLogger("txsaga")

THREADS = 4
A_MOMENT = 0.02
NOT_SEEN = "no thread was free for its checker"


class Answering:
    """Takes up questions, has them answered, and takes them away."""

    name = "answering"
    pace = Pace(0.05, 0.5)

    def __init__(self, kernel: Kernel, threads: int = THREADS) -> None:
        self._kernel, self._threads = kernel, threads
        self._questions: SimpleQueue[Taken] = SimpleQueue()
        self._answers: SimpleQueue[Answer] = SimpleQueue()
        self._mine: dict[int, Taken] = {}  # once each, also what is put again while its checker hangs
        self._started = 0
        self._room = Room(threads)
        self._look_at, self._wait = 0.0, self.pace.pause

    def run_once(self) -> int:
        """Take up what is asked and take away what is answered; return how many were either, or are with a checker."""
        if not self._kernel.checkers.by_id:
            return 0
        taken = self._take_up()
        return taken + self._take_away() + len(self._mine)

    def _take_up(self) -> int:
        free = self._room.places - len(self._mine)
        at = time.monotonic()  # before the store's time for them begins
        if free <= 0 or (self._mine and at < self._look_at):
            return 0
        with self._kernel.announce.around(facts.Hearing):
            taken = self._kernel.store.questions.take(self._kernel.member, free)
        for asked in taken:
            self._wait_for_thread(asked, at)
        while taken and self._started < self._threads:
            name = f"txsaga-checker-{self._started + 1}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
            self._started += 1
        self._wait = self.pace.pause if taken else min(2 * self._wait, self.pace.rest)
        self._look_at = at if len(taken) == free else at + self._wait  # there was no more than that
        return len(taken)

    def _wait_for_thread(self, asked: Asked, at: float) -> None:
        known = self._mine.get(asked.doubt.txid)
        if known is None:
            known = self._mine[asked.doubt.txid] = Taken(asked, at)
            self._questions.put(known)
        elif not known.begun:
            known.renew(asked, at)

    def _take_away(self) -> int:
        if not self._mine:
            return 0
        answers = self._drained()
        late = [taken.txid for taken in list(self._mine.values()) if taken.give_back()]
        answers += [Answer(txid, None, NOT_SEEN) for txid in late]
        if answers:
            for answer in answers:
                self._mine.pop(answer.txid, None)
            self._room.learn(len(answers), len(late))
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
            taken = self._questions.get()
            if not taken.begin():
                continue
            self._room.waited = time.monotonic() - taken.at
            txid = taken.txid
            try:
                self._answer(taken.asked)
            except BaseException as failure:  # the thread stays: the next question would have none
                logger.exception("the answer for transaction %d failed", txid, extra={"txid": txid})
                self._say(txid, LocalState.UNKNOWN, f"{type(failure).__name__}: {failure}")

    def _say(self, txid: int, state: LocalState | None, why: str) -> None:
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
            done.add_done_callback(lambda _: self._say(doubt.txid, *_stands(done, why)))

    def _decided(self, case: Case, verdict: Verdict) -> tuple[LocalState | None, str]:
        decision, why = verdict.state.decision, verdict.why
        assert decision is not None
        by = By(who=f"checker {self._kernel.member}", why=why, from_check=True, found=verdict.found)
        try:
            try:
                standing = self._kernel.settler.written(case, decision, by, verdict)
            except InDoubt as first:  # it is out of checks since, or somebody opened it again
                try:
                    standing = self._kernel.settler.written(case, decision, replace(by, found=TxState.PARKED), verdict)
                except InDoubt:
                    raise first from None
        except TxSagaError as failure:
            state = None if isinstance(failure, InDoubt) else LocalState.UNKNOWN  # in doubt, the check does not count
            return state, f"{why}, but it could not be decided: {failure}"
        self._kernel.tell_decided()
        return LocalState[standing.decision.name], why


def _stands(done: Future[Standing], why: str) -> tuple[LocalState, str]:
    """Say what an end came to: whatever stands, the transaction is decided."""
    error = done.exception()
    if error is None:
        return LocalState[done.result().decision.name], why
    if isinstance(error, DecidedOtherwise):
        return LocalState[error.standing], why
    return LocalState.UNKNOWN, f"{why}, but it could not be decided: {error}"
