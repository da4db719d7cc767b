"""
Answering: check-back's questions to this member, and the answers of its checkers.

Checkers run in their own threads, as many as the user sets. A checker that has not returned in time counts as UNKNOWN;
its thread is left to it and replaced, and a later answer is still processed as an end. While it hangs, another question
about its transaction is given back and does not count. While as many checkers of one group hang as there are threads,
this member leaves the group, so that others are asked. Checkers that began just before may hang too; all threads
together are never more than `threads` × (1 + 2 × groups whose checkers hang).

An answer is processed like any end: the decision is written first, and then the question is removed. If this process
dies in between, the decision is final, and a round removes the question. The time for an answer runs from when a
question is taken up, so no more are taken up than can begin soon. One that waits here for a thread until half of its
time is over is given back and does not count: no checker has seen it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from enum import Enum, auto
from queue import Empty, SimpleQueue

from txsaga.checkback.doubt_context import DoubtContext
from txsaga.checkback.judge import Basis, Verdict
from txsaga.checkback.questions import OpenQuestion, QuestionAnswer
from txsaga.core import facts
from txsaga.core.decision import LocalState
from txsaga.core.kernel import Kernel
from txsaga.core.lifecycle import TxState
from txsaga.core.records import DecisionOutcome, End
from txsaga.core.role_loop import Pace
from txsaga.errors import DecidedOtherwise, InDoubt, TxSagaError
from txsaga.messages.decide import DecidedBy

logger = logging.getLogger("txsaga")

MOST = 2_000
"""Questions that are taken up and not answered yet."""
SOON = 0.5
"""Seconds that a question may wait here for a thread, while more are taken up."""
FASTEST = 8
"""The window grows at most by this factor at once: waits grow with it, and stay short."""


class QuestionState(Enum):
    """The progress of a question."""

    WAITS = auto()  # for a thread
    ASKED = auto()  # a checker runs
    HANGS = auto()  # the checker has not returned in time, and its thread is replaced
    RETURNED = auto()
    CAME_LATE = auto()  # it returned after its thread was replaced


class PendingQuestion:
    """A question that was taken up: it waits for a thread, or a checker runs."""

    def __init__(self, asked: OpenQuestion, at: float) -> None:
        self._lock = threading.Lock()
        self.renew(asked, at)
        self._state = QuestionState.WAITS
        self._began = at

    @property
    def txid(self) -> int:
        """The transaction that it is about."""
        return self.asked.doubt.txid

    @property
    def group(self) -> int:
        """The group of its transaction."""
        return self.asked.doubt.group

    @property
    def runs_for(self) -> float:
        """The seconds since its checker began."""
        return time.monotonic() - self._began

    @property
    def replaced(self) -> bool:
        """Whether another thread replaced the one of its checker."""
        return self._state is QuestionState.CAME_LATE

    def renew(self, asked: OpenQuestion, at: float) -> None:
        """Record that it was asked again."""
        self.asked, self.at = asked, at
        self.until = at + asked.patience.total_seconds() / 2

    def begin(self) -> bool:
        """Start its checker; False when it is too late for that."""
        with self._lock:
            now = time.monotonic()
            if now >= self.until:
                return False
            self._state, self._began = QuestionState.ASKED, now
            return True

    def give_back(self, *, at_once: bool) -> bool:
        """Return whether it is given back: no checker began in time, or the checker of an earlier question hangs."""
        with self._lock:
            late = time.monotonic() >= self.until  # from then on none begins
            if self._state is QuestionState.WAITS:
                return late
            return self._state is QuestionState.HANGS and (late or at_once)

    def leave(self) -> bool:
        """Stop waiting for its checker; False while its time runs, and once it hangs or has returned."""
        with self._lock:
            over = time.monotonic() - self.at >= self.asked.patience.total_seconds()
            if self._state is not QuestionState.ASKED or not over:
                return False
            self._state = QuestionState.HANGS
            return True

    def end(self) -> None:
        """Record that its checker returned."""
        with self._lock:
            late = self._state in (QuestionState.HANGS, QuestionState.CAME_LATE)
            self._state = QuestionState.CAME_LATE if late else QuestionState.RETURNED


class AdmissionWindow:
    """How many questions are taken up at the same time."""

    def __init__(self, threads: int) -> None:
        self._threads = self.places = threads
        self.waited = 0.0  # how long the last question waited for its thread

    def learn(self, answered: int, late: int) -> None:
        """Grow by the number of answers, while checkers are quick; shrink when questions waited too long."""
        if late or self.waited >= SOON:
            self.places = max(self.places // 2, self._threads)
        else:
            times = FASTEST if self.waited < SOON / FASTEST else 2
            self.places = min(self.places + (times - 1) * answered, max(MOST, self._threads))


THREADS = 4
A_MOMENT = 0.02
NOT_SEEN = "no thread was free for its checker"
HANG = "checkers of its group hang in this member"
STILL = "still hangs in this member"


class AnswerRole:
    """Takes up questions, has them answered, and removes them."""

    name = "answering"
    pace = Pace(0.05, 0.5)

    def __init__(self, kernel: Kernel, threads: int = THREADS) -> None:
        self._kernel, self._threads = kernel, threads
        self._questions: SimpleQueue[PendingQuestion] = SimpleQueue()
        self._answers: SimpleQueue[QuestionAnswer] = SimpleQueue()
        self._mine: dict[int, PendingQuestion] = {}  # one per transaction
        self._hanging: dict[int, PendingQuestion] = {}  # their checkers did not return in time, and have not since
        self._started = 0
        self._window = AdmissionWindow(threads)
        self._look_at, self._wait = 0.0, self.pace.pause

    def run_once(self) -> int:
        """Take up new questions and remove answered ones; return how many were either, or are with a checker."""
        if not self._kernel.checkers.by_id:
            return 0
        taken = self._take_up()
        return taken + self._take_away() + len(self._mine)

    def _take_up(self) -> int:
        free = self._window.places - len(self._mine)
        at = time.monotonic()  # before the store starts their time
        if free <= 0 or (self._mine and at < self._look_at):
            return 0
        with self._kernel.announce.around(facts.Hearing):
            taken = self._kernel.store.questions.take(self._kernel.member, free)
        for asked in taken:
            self._wait_for_thread(asked, at)
        if taken:
            self._start_threads()
        self._wait = self.pace.pause if taken else min(2 * self._wait, self.pace.rest)
        self._look_at = at if len(taken) == free else at + self._wait  # there were no more than that
        return len(taken)

    def _wait_for_thread(self, asked: OpenQuestion, at: float) -> None:
        txid = asked.doubt.txid
        known = self._mine.get(txid) or self._hanging.get(txid)  # one checker per transaction at a time
        if known is None:
            known = PendingQuestion(asked, at)
            self._questions.put(known)
        else:
            known.renew(asked, at)
        self._mine[txid] = known

    def _start_threads(self) -> None:
        while self._started < self._threads:
            self._started += 1
            name = f"txsaga-checker-{self._started}"
            threading.Thread(target=self._work, name=name, daemon=True).start()

    def _take_away(self) -> int:
        if not (self._mine or self._hanging):
            return 0
        answers = self._drained()
        for answer in answers:
            self._mine.pop(answer.txid, None)
            self._hanging.pop(answer.txid, None)
        left = self._left()
        self._leave_groups()
        self._start_threads()  # they see which groups were left, and start none of their checkers
        back = self._given_back()
        answers += left + back
        if answers:
            self._window.learn(len(answers), len(left) + sum(answer.why == NOT_SEEN for answer in back))
            with self._kernel.announce.around(facts.Answering, *(answer.txid for answer in answers)):
                self._kernel.store.questions.answered(self._kernel.member, answers)
        return len(answers)

    def _left(self) -> list[QuestionAnswer]:
        """Stop waiting for checkers whose time is over; their threads are to be replaced."""
        left = [taken for taken in self._mine.values() if taken.leave()]
        for taken in left:
            self._hanging[taken.txid] = self._mine.pop(taken.txid)
            self._started -= 1
            logger.warning("transaction %d: %s", taken.txid, self._hangs(taken), extra={"txid": taken.txid})
        return [QuestionAnswer(taken.txid, LocalState.UNKNOWN, self._hangs(taken)) for taken in left]

    def _given_back(self) -> list[QuestionAnswer]:
        """Give back questions without a free thread, and repeated ones whose checker hangs."""
        hanging = self._kernel.checkers.hanging
        back = [taken for taken in self._mine.values() if taken.give_back(at_once=taken.group in hanging)]
        for taken in back:
            del self._mine[taken.txid]
        return [
            QuestionAnswer(
                each.txid, None, f"{self._checker(each)} {STILL}" if each.txid in self._hanging else NOT_SEEN
            )
            for each in back
        ]

    def _leave_groups(self) -> None:
        """Stop answering for groups with too many hanging checkers, until fewer hang."""
        counts = Counter(taken.group for taken in self._hanging.values())
        hanging = frozenset(group for group, count in counts.items() if count >= self._threads)
        checkers = self._kernel.checkers
        for group in hanging - checkers.hanging:
            oldest = next(taken for taken in self._hanging.values() if taken.group == group)
            logger.error(
                "this process no longer answers checks for group %r: %d of its checkers hang; %s; it answers again "
                "once fewer than %d hang; restart it, or run another process of the group",
                checkers.by_id.get(group),
                counts[group],
                self._hangs(oldest),
                self._threads,
            )
        for group in checkers.hanging - hanging:
            logger.warning("this process answers checks for group %r again", checkers.by_id.get(group))
        checkers.hanging = hanging

    def _hangs(self, taken: PendingQuestion) -> str:
        return f"{self._checker(taken)} has not returned for {taken.runs_for:.0f} s"

    def _checker(self, taken: PendingQuestion) -> str:
        checkers = self._kernel.checkers
        group = checkers.by_id.get(taken.group, "")
        return f"checker {checkers.name_of(group)} of group {group!r}"

    def _drained(self) -> list[QuestionAnswer]:
        answers = []
        with suppress(Empty):
            answers.append(self._answers.get(timeout=A_MOMENT))
            while True:
                answers.append(self._answers.get_nowait())
        return answers

    def _work(self) -> None:
        while True:
            taken = self._questions.get()
            if not taken.begin():
                continue
            self._window.waited = time.monotonic() - taken.at
            txid = taken.txid
            try:
                self._answer(taken)
            except BaseException as failure:  # keep the thread: the next question needs it
                taken.end()
                logger.exception("the answer for transaction %d failed", txid, extra={"txid": txid})
                self._say(txid, LocalState.UNKNOWN, f"{type(failure).__name__}: {failure}")
            if taken.replaced:
                return  # another thread has replaced this one

    def _say(self, txid: int, state: LocalState | None, why: str) -> None:
        self._answers.put(QuestionAnswer(txid, state, why))

    def _answer(self, taken: PendingQuestion) -> None:
        asked, doubt, checkers = taken.asked, taken.asked.doubt, self._kernel.checkers
        if doubt.group in checkers.hanging:
            taken.end()
            return self._say(doubt.txid, None, HANG)
        group = checkers.by_id.get(doubt.group)
        case = DoubtContext(self._kernel.store, doubt, group)
        case.key = asked.key
        if asked.halves:
            case.halves = asked.halves
        state, why = checkers.say(case)
        taken.end()
        self._kernel.settler.report(case, Verdict(state, why, Basis.ANSWER))
        if (decision := state.decision) is None:
            self._say(doubt.txid, state, why)
        elif doubt.keyed:
            self._say(doubt.txid, *self._decided(case, Verdict(state, why, Basis.ANSWER, found=TxState.SEALED)))
        else:
            end = End(doubt.txid, doubt.group, doubt.token, decision, from_check=True)
            done = self._kernel.decides.submit(end)
            done.add_done_callback(lambda _: self._say(doubt.txid, *_stands(done, why)))

    def _decided(self, case: DoubtContext, verdict: Verdict) -> tuple[LocalState | None, str]:
        decision, why = verdict.state.decision, verdict.why
        assert decision is not None
        by = DecidedBy(who=f"checker {self._kernel.member}", why=why, from_check=True, found=verdict.found)
        try:
            try:
                standing = self._kernel.settler.written(case, decision, by, verdict)
            except InDoubt as first:  # it ran out of checks meanwhile, or was resumed
                try:
                    standing = self._kernel.settler.written(case, decision, replace(by, found=TxState.PARKED), verdict)
                except InDoubt:
                    raise first from None
        except TxSagaError as failure:
            state = None if isinstance(failure, InDoubt) else LocalState.UNKNOWN  # in doubt, the check does not count
            return state, f"{why}, but it could not be decided: {failure}"
        return LocalState[standing.decision.name], why


def _stands(done: Future[DecisionOutcome], why: str) -> tuple[LocalState, str]:
    if (error := done.exception()) is None:
        return LocalState[done.result().decision.name], why
    if isinstance(error, DecidedOtherwise):
        return LocalState[error.standing], why
    return LocalState.UNKNOWN, f"{why}, but it could not be decided: {error}"
