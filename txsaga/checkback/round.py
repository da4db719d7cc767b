"""
Check-back: finds undecided transactions, and settles each by what can be known about it.

A round first checks whether there is work, and writes nothing if not. It takes the lead, lists what is new, and asks in
this order: the run of a flow (R5), the evidence (each database in one query, fenced one by one), and where only a
checker knows, a live member of the producer group, by a question that is counted before it is asked.

    decided by what is known                  written at once, with its audit row
    no answer                                 put off, not counted
    its settlement failed                     put off, counted
    only a checker knows                      asked
    out of checks, or of its total time       parked; or rolled back, where its group sets that and no evidence could
                                              contradict

Work that many doubts have in common is done together (evidence is read, decisions are written, questions are asked),
but one never spoils the others: a common step that fails is repeated one by one, and a doubt that can't even be read is
parked with its error. A round has a time limit, so that a slow database keeps no other waiting for long. What a dying
round leaves is due again. If no round ever runs, half messages of dead producers stay invisible, and their partitions
are never dropped.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import timedelta
from functools import cache, partial
from itertools import count
from typing import TYPE_CHECKING, Self, TypeVar

from txsaga.checkback.checkers import Question, question_about
from txsaga.checkback.doubt_context import DoubtContext
from txsaga.checkback.heartbeat import Lease, checkers_of
from txsaga.checkback.judge import UNCOUNTED, Basis, Judge, Verdict
from txsaga.checkback.profile import CheckProfile, Exhausted
from txsaga.checkback.questions import Ask, PutOff, VerdictRecord, kept
from txsaga.checkback.runs import RunState
from txsaga.core import facts
from txsaga.core.decision import Decision, LocalState
from txsaga.core.failure import contained
from txsaga.core.kernel import Handler, Kernel
from txsaga.core.lifecycle import TRANSACTION, TxEvent
from txsaga.core.records import Doubt
from txsaga.core.role_loop import Pace
from txsaga.errors import InDoubt, NotPrimary, OutcomeUnknown, StoreBusy, StoreError, StoreUnavailable, TxSagaError
from txsaga.messages.decide import DecidedBy

if TYPE_CHECKING:
    from txsaga.messages.ledger_store import Ledger
    from txsaga.store.store import Store

logger = logging.getLogger("txsaga")

CHECK_BACK = "check-back"
"""Who decided, in the audit row."""
LIVES = "its run is alive"
SILENT = "the state of its run is unknown"
TOGETHER = 32
"""Cases that are fenced before the round checks its time again."""

Item = TypeVar("Item")
Settled = tuple[DoubtContext, VerdictRecord]
Turns = defaultdict[int, Iterator[int]]
"""By group: with one counter for all, two members asked about two groups would each get all of one."""
HANDS_FULL = timedelta(seconds=0.1)
"""The delay of the next try where members or a database are busy: quick ones are free by then."""
BUDGET = 60.0
"""Seconds: what is not reached waits for the next round."""
AT_ONCE = 1_000
MOST_ASKED = 5_000
"""Questions that one member has at a time; others stay due. A fifth must be free: for less no round is worth it."""


class EvidenceBatch:
    """The queries of one round for evidence."""

    def __init__(self, store: Store, judge: Judge) -> None:
        self._store, self._judge = store, judge
        self._opened = ExitStack()
        self._threads: dict[int, ThreadPoolExecutor | None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()  # lets the fences in flight finish

    def verdicts(self, cases: Sequence[DoubtContext]) -> Iterator[tuple[DoubtContext, Callable[[], Verdict]]]:
        """Read the evidence of all, and yield each case with a function for its verdict."""
        self._judge.look(cases)
        for start in range(0, len(cases), TOGETHER):
            some = cases[start : start + TOGETHER]
            self._show([case for case in some if case.seen is not None and not case.seen.committed])
            yield from [(case, self._begun(case)) for case in some]

    def _begun(self, case: DoubtContext) -> Callable[[], Verdict]:
        seen, know = case.seen, partial(self._judge.know, case)
        if case.doubt.keyed or seen is None or seen.outcome is not None or seen.unread is not None:
            return know
        if seen.resource not in self._threads:
            at_once = self._judge.fences_at_once(seen.resource)
            pool = ThreadPoolExecutor(at_once, "txsaga-fence") if at_once > 1 else None
            self._threads[seen.resource] = pool and self._opened.enter_context(pool)
        threads = self._threads[seen.resource]
        return threads.submit(know).result if threads else know

    def _show(self, cases: Sequence[DoubtContext]) -> None:
        """Read the half messages of cases that will be reported, together."""
        if cases:
            with suppress(StoreError):  # then each is read on demand
                views = self._store.halves.views_of([case.doubt.txid for case in cases])
                for case in cases:
                    case.halves = views.get(case.doubt.txid, ())


class Round:
    """One round, under one lead."""

    def __init__(self, kernel: Kernel, profile: CheckProfile, lease: Lease, turns: Turns) -> None:
        self._kernel, self._store, self._profile = kernel, kernel.store, profile
        self._lease, self._lead, self._turns = lease, lease.lead, turns
        self._group = cache(self._store.registry.group_by_id)
        self._policies: dict[int, CheckProfile] = {}
        self._exhaustion = Exhaustion(kernel)
        self._settled: list[Settled] = []
        self._asked: list[DoubtContext] = []
        self._put_off: list[PutOff] = []
        self.done: Counter[str] = Counter()

    def run(self, limit: int) -> Counter[str]:
        """Sweep, and handle what is due; return the number of cases by result."""
        announce = self._kernel.announce
        with announce.around(facts.Collecting):
            self._store.questions.collect()
        with announce.around(facts.Sweeping):
            self._store.doubts.sweep(self._profile.min_age)
        due = self._store.doubts.due(limit)
        cases = [DoubtContext(self._store, doubt, self._group(doubt.group).name) for doubt in due]
        with EvidenceBatch(self._store, self._kernel.settler.judge) as batch:
            end = None
            for case, verdict in batch.verdicts(cases):
                end = end or time.monotonic() + BUDGET  # starts after the common reads
                if time.monotonic() > end or not self._leads():
                    break
                self._deal_with(case, verdict)
                if len(self._settled) >= AT_ONCE:
                    self._settle()
        self._settle()
        self._ask()
        self._write_put_off()
        return self.done

    def _leads(self) -> bool:
        """Return whether this round's lead still holds: after a long sleep another process may have it."""
        return self._lease.take() and self._lease.lead == self._lead

    def _deal_with(self, case: DoubtContext, verdict: Callable[[], Verdict]) -> None:
        doubt = case.doubt
        try:
            run = state_of_run(self._kernel, doubt)
            if run is RunState.ALIVE:
                self._put(doubt, LIVES, counted=False, anew=True)
            elif run is RunState.UNREACHABLE:
                self._wait(case, SILENT)
            else:
                self._follow(case, verdict())
        except (StoreUnavailable, StoreBusy, NotPrimary, InDoubt) as silent:
            self._put(doubt, str(silent), counted=False)
        except TxSagaError as failure:
            self._fail(case, str(failure))
        except Exception as poison:
            logger.exception("check of transaction %d failed", doubt.txid, extra={"txid": doubt.txid})
            self._give_up(case, f"{type(poison).__name__}: {poison}")

    def _fail(self, case: DoubtContext, why: str) -> None:
        """Count a check whose settlement failed; give up after the last one."""
        doubt, policy = case.doubt, self._policy(case.doubt)
        if doubt.checks + 1 >= policy.max_checks or doubt.age > policy.total_limit:
            self._give_up(case, why)
        else:
            self._put(doubt, why, counted=True)

    def _follow(self, case: DoubtContext, verdict: Verdict) -> None:
        decision, doubt = verdict.state.decision, case.doubt
        if decision is not None:
            self._kernel.settler.report(case, verdict)
            if not doubt.keyed:
                self._settled.append((case, VerdictRecord(doubt.txid, decision, verdict.why)))
                return
            unheard = verdict.basis is Basis.OPEN
            by = DecidedBy(who=CHECK_BACK, why=verdict.why, from_check=True, found=verdict.found, unheard=unheard)
            self._kernel.settler.written(case, decision, by, verdict)
            self.done["settled"] += 1
        elif verdict.basis is Basis.LATER:
            self._put_off.append(PutOff(doubt.txid, HANDS_FULL, "", False))
        elif (spent := self._spent(doubt, verdict)) is not None:
            self._give_up(case, spent)
        elif verdict.basis is Basis.ANSWER:
            self._asked.append(case)
        else:
            self._kernel.settler.report(case, verdict)
            self._put(doubt, verdict.why, counted=verdict.basis not in UNCOUNTED)

    def _spent(self, doubt: Doubt, verdict: Verdict) -> str | None:
        policy = self._policy(doubt)
        if verdict.basis is Basis.COORDINATOR:
            return None  # a yes vote is never given up here
        if doubt.age > policy.total_limit and not (verdict.basis is Basis.NO_ANSWER and self._is_held(doubt)):
            return f"not decided within {policy.total_limit}: {verdict.why}"
        if verdict.basis is not Basis.NO_ANSWER and doubt.checks >= policy.max_checks:
            remarks = self._store.overview.remarks(doubt.txid)
            return f"out of checks ({doubt.checks}): {remarks[-1].why if remarks else verdict.why}"
        return None

    def _is_held(self, doubt: Doubt) -> bool:
        """Return whether resources hold work for it, or it has steps to undo: parking it would hold them for ever."""
        if not doubt.keyed:
            return False
        held = any(branch.unfinished for branch in self._store.work.branches(doubt.txid))
        return held or bool(self._store.work.steps(doubt.txid))

    def _settle(self) -> None:
        batch, self._settled = self._settled, []
        if batch:
            _one_spoils_no_other(batch, self._write, self._not_settled)

    def _not_settled(self, each: Settled, failure: StoreError) -> None:
        case, _ = each
        if isinstance(failure, StoreBusy):
            self._put(case.doubt, str(failure), counted=False)
        else:
            self._fail(case, str(failure))

    def _write(self, batch: Sequence[Settled]) -> None:
        verdicts = [verdict for _, verdict in batch]
        with self._kernel.announce.around(facts.Deciding, *(each.txid for each in verdicts), about=CHECK_BACK):
            standings = self._store.doubts.settle(verdicts, CHECK_BACK)
        self.done["settled"] += len(standings)
        self._kernel.tell_decided()

    def _ask(self) -> None:
        """Ask a live member of its group about each, in turn; the member asked last only if it is the only one."""
        cases, self._asked = self._asked, []
        if not cases or not self._leads():
            return
        alive = self._store.leases.alive(sorted({checkers_of(case.doubt.group) for case in cases}))
        backlog = Counter(self._store.questions.backlog())
        full = {member for member, count in backlog.items() if count > MOST_ASKED * 4 // 5}
        asks, alone = [], defaultdict(list)
        for case in cases:
            members = alive.get(checkers_of(case.doubt.group), ())
            if free := [member for member in members if member not in full and backlog[member] < MOST_ASKED]:
                others = [member for member in free if member != case.doubt.asked_last] or free
                member = others[next(self._turns[case.doubt.group]) % len(others)]
                backlog[member] += 1
                policy = self._policy(case.doubt)
                asks.append(Ask(case.doubt.txid, case.doubt.group, member, policy.interval, policy.reply_timeout))
            elif members:  # others must not wait for those whose members are busy
                self._put_off.append(PutOff(case.doubt.txid, HANDS_FULL, "", False))
            else:
                alone[case.group].append(case)
        for at in range(0, len(asks), AT_ONCE):
            _one_spoils_no_other(asks[at : at + AT_ONCE], self._put_questions, self._not_asked)
        for group, left in alone.items():
            self._leave_alone(group, left)

    def _put_questions(self, asks: Sequence[Ask]) -> None:
        if self._lead is not None and self._leads():
            with self._kernel.announce.around(facts.Asking, *(ask.txid for ask in asks)):
                self.done["asked"] += len(self._store.questions.ask(asks, self._lead))

    def _not_asked(self, ask: Ask, failure: StoreError) -> None:
        logger.error("no producer can be asked about transaction %d: %s", ask.txid, failure, extra={"txid": ask.txid})
        self._put_off.append(PutOff(ask.txid, ask.interval, str(failure), False))

    def _leave_alone(self, group: str, cases: Sequence[DoubtContext]) -> None:
        why = f"no live member of group {group!r} has a checker"
        logger.warning("%s; %d transactions wait for one", why, len(cases), extra={"group": group})
        for case in cases:
            self._wait(case, why)

    def _wait(self, case: DoubtContext, why: str) -> None:
        """Put off what can't be answered now; past its total time, give up: nothing is kept for ever."""
        limit = self._policy(case.doubt).total_limit
        if case.doubt.age > limit and not self._is_held(case.doubt):
            self._give_up(case, f"not decided within {limit}: {why}")
        else:
            self._put(case.doubt, why, counted=False)

    def _give_up(self, case: DoubtContext, why: str) -> None:
        if not self._leads():
            return  # its checks may have been resumed meanwhile
        try:
            self.done[self._exhaustion(case, why, self._policy(case.doubt).on_exhausted)] += 1
        except InDoubt as moved:
            self._put(case.doubt, str(moved), counted=False)
        except StoreError as failure:
            self._put(case.doubt, f"{why}; it can't be parked or rolled back: {failure}", counted=False)

    def _put(self, doubt: Doubt, why: str, *, counted: bool, anew: bool = False) -> None:
        self._put_off.append(PutOff(doubt.txid, self._policy(doubt).interval, why, counted, anew))

    def _write_put_off(self) -> None:
        later, self._put_off = self._put_off, []
        for counted in (True, False):
            if some := [each for each in later if each.counted is counted]:
                _one_spoils_no_other(some, self._postpone, _not_put_off)

    def _postpone(self, later: Sequence[PutOff]) -> None:
        counting = any(each.counted for each in later)  # only the leader counts: the store checks who leads
        with self._kernel.announce.around(facts.Postponing, *(each.txid for each in later)):
            if self._store.doubts.put_off(later, self._lead if counting else None):
                self.done["put off"] += len(later)

    def _policy(self, doubt: Doubt) -> CheckProfile:
        if doubt.group not in self._policies:
            said = self._group(doubt.group).checks
            try:
                self._policies[doubt.group] = self._profile.of_group(said)
            except (TxSagaError, TypeError, ValueError, AttributeError):
                logger.exception("the check settings of producer group %d can't be read", doubt.group)
                self._policies[doubt.group] = self._profile
        return self._policies[doubt.group]


def state_of_run(kernel: Kernel, doubt: Doubt) -> RunState:
    """Return the state of a transaction's run (R5); without a run, it is over.

    A live run keeps its transaction; so does one whose host is silent, until the total time of its group is over.
    Without this, a flow that waits a day for an approval would be rolled back.
    """
    if doubt.run is None:
        return RunState.OVER
    if kernel.runs is None:
        return RunState.UNREACHABLE
    try:
        said = kernel.beside.begin("the host of runs", partial(kernel.runs.state, doubt.run))()
        return said if said in (RunState.ALIVE, RunState.OVER) else RunState.UNREACHABLE
    except StoreUnavailable as silent:
        logger.warning("the state of run %s is unknown: %s", doubt.run, silent, extra={"txid": doubt.txid})
        return RunState.UNREACHABLE
    except Exception:  # a host that fails in any way has not reported the run as over
        logger.exception("the host of run %s failed", doubt.run, extra={"txid": doubt.txid})
        return RunState.UNREACHABLE


def _one_spoils_no_other(
    batch: Sequence[Item], write: Callable[[Sequence[Item]], None], failed: Callable[[Item, StoreError], None]
) -> None:
    """Write a batch; if it fails as a whole, write it item by item."""
    try:
        write(batch)
    except (StoreUnavailable, OutcomeUnknown):
        raise  # not an item's fault, or done already: the others are due again
    except StoreError as failure:
        if len(batch) == 1:
            return failed(batch[0], failure)
        for item in batch:
            _one_spoils_no_other([item], write, failed)


def _not_put_off(each: PutOff, failure: StoreError) -> None:
    logger.error("transaction %d can't be postponed: %s", each.txid, failure, extra={"txid": each.txid})


class CheckBack:
    """One round after the other, while no other process has the lead."""

    name = CHECK_BACK
    pace = Pace(0.1, 1.0)
    LIMIT = 2_000

    def __init__(self, kernel: Kernel, profile: CheckProfile | None = None, limit: int = LIMIT) -> None:
        self._kernel, self._limit = kernel, limit
        self._profile = profile or CheckProfile()
        self._lease = Lease(kernel, self.name)
        self._turns: Turns = defaultdict(count)
        self.done: Counter[str] = Counter()

    def run_once(self) -> int:
        """Sweep, then settle or ask about what is due; return how many made progress, with details in `done`."""
        self.done = Counter()
        if not self._kernel.store.doubts.waiting(self._profile.min_age) or not self._lease.take():
            return 0
        try:
            return self._round()
        finally:
            with suppress(StoreError):  # it expires by itself
                self._lease.give_back()

    def _round(self) -> int:
        begun = time.monotonic()
        logger.info("check-back round started", extra={"role": self.name})
        self.done = Round(self._kernel, self._profile, self._lease, self._turns).run(self._limit)
        told = ", ".join(f"{number} {what}" for what, number in sorted(self.done.items())) or "nothing due"
        logger.info("check-back round took %.3f s: %s", time.monotonic() - begun, told, extra={"role": self.name})
        return self.done.total() - self.done["put off"]


class Exhaustion:
    """What happens to a transaction that is out of checks, or that can't even be read.

    Its group's handler is called first, if this process has one: it may return ROLLBACK. A group may set that for all
    of its transactions. Neither applies where evidence is recorded: the local work may have committed. Otherwise it is
    parked: off the checks, invisible, listed with the reason, until an operator settles it or resumes its checks. If
    this never runs, it is checked for ever.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._store = kernel, kernel.store

    def __call__(self, case: DoubtContext, why: str, on_exhausted: Exhausted) -> str:
        """Give up on a transaction; return what was done. `InDoubt` if its owner became active meanwhile."""
        said = self._handled(case)
        if said is Decision.ROLLBACK or on_exhausted is Exhausted.ROLL_BACK:
            try:
                decision = self._roll_back(case, why)
            except InDoubt:
                raise
            except TxSagaError as failure:
                why = f"{why}; its rollback failed: {failure}"
            else:
                if decision is not None:
                    return "rolled back" if decision is Decision.ROLLBACK else "settled"
        return self._park(case, why)

    def _handled(self, case: DoubtContext) -> Decision | None:
        """Call the group's handler; `StoreUnavailable` when it does not answer: that is no reason to park."""
        if (handler := self._kernel.handlers.get(case.group)) is None:
            return None
        asked = partial(_said, case, handler, question_about(case))
        return self._kernel.beside.begin(f"the handler of group {case.group!r}", asked)()

    def _roll_back(self, case: DoubtContext, why: str) -> Decision | None:
        """Write ROLLBACK, unless evidence is recorded: then only that decides. Return the decision."""
        txid = case.doubt.txid
        if not case.doubt.keyed:
            if case.doubt.evidence:
                return None
            decision = self._roll_back_plain(txid, why)
        else:
            with self._store.ledgers.open() as ledger:
                life = ledger.lock(txid)
            if life is None or life.evidence:
                return None
            by = DecidedBy(who=CHECK_BACK, why=why, from_check=True, found=life.state, unheard=True)
            decision = self._kernel.decider.decide(txid, Decision.ROLLBACK, by).decision
        logger.error("transaction %d: %s (%s)", txid, decision.name, why, extra={"txid": txid})
        return decision

    def _roll_back_plain(self, txid: int, why: str) -> Decision:
        with self._kernel.announce.around(facts.Deciding, txid, about=CHECK_BACK), self._store.ledgers.open() as ledger:
            if (stands := ledger.standing(txid)) is None:
                _require_due(ledger, txid)
                if ledger.write_op(txid, Decision.ROLLBACK, from_check=True, keyed=False):
                    ledger.record(txid, Decision.ROLLBACK.name, who=CHECK_BACK, why=kept(why))
                stands = ledger.standing(txid)
        assert stands is not None
        return stands

    def _park(self, case: DoubtContext, why: str) -> str:
        txid = case.doubt.txid
        with self._kernel.announce.around(facts.Parking, txid, about=why), self._store.ledgers.open() as ledger:
            life = ledger.lock(txid)
            if ledger.standing(txid) is not None:
                return "settled"  # a decision came first
            if life is not None and life.voted:
                raise InDoubt(f"transaction {txid} voted yes for store {life.coordinator}, which decides it")
            _require_due(ledger, txid)
            if life is not None and life.state in TRANSACTION.sources(TxEvent.PARK):
                ledger.move(txid, TxEvent.PARK)
            ledger.park(txid, why)
            ledger.record(txid, "PARKED", who=CHECK_BACK, why=kept(why))
        logger.error("transaction %d is parked: %s", txid, why, extra={"txid": txid})
        return "parked"


def _said(case: DoubtContext, handler: Handler, question: Question) -> Decision | None:
    """Return a handler's answer; only ROLLBACK is accepted, as either enum or as text."""
    txid = case.doubt.txid
    try:
        said: object = contained(partial(handler, question))
        if said is Decision.ROLLBACK or said == LocalState.ROLLBACK:
            return Decision.ROLLBACK
        if said is not None:
            what = "the handler of group %r returned %r for transaction %d; only ROLLBACK is accepted, so it is ignored"
            logger.warning(what, case.group, said, txid, extra={"txid": txid})
    except Exception:  # the user's code: no exception of it ends the round
        logger.exception("the handler of transaction %d failed", txid, extra={"txid": txid})
    return None


def _require_due(ledger: Ledger, txid: int) -> None:
    if not ledger.due(txid):
        raise InDoubt(f"transaction {txid} is in use, or its checks were resumed")
