"""
Recovery: finish the branches of decided transactions when their owner could not.

It decides nothing. A decided transaction's branches are committed if the decision names them, rolled back otherwise; a
prepared branch without a decision is left to its owner and to check-back. One that no transaction names was never
decided and never will be: it is rolled back (presumed abort). Each resource is handled by itself, so a dead one does
not slow the others; its branches wait for it for as long as it takes. Any number of copies may run. If recovery never
runs, locks of dead owners stay.

It also has resources drop, page by page, what they keep of finished branches. The row of a commit is dropped some time
after the resource has acknowledged the decision, a barrier after longer than any local transaction can last (R10).
Heuristic outcomes stay until an operator forgets them, and branches that this store has no row of stay too. If this
never runs, small rows and markers pile up.

The other part of this role takes over sagas (`SagaRecovery`). Each part has its own rounds, so that neither a database
that is away nor a compensation that hangs delays the other.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache, partial
from uuid import UUID

from txsaga import errors
from txsaga.checkback.round import CHECK_BACK
from txsaga.core import facts
from txsaga.core.decision import Decision
from txsaga.core.kernel import Kernel
from txsaga.core.role_loop import Pace
from txsaga.flows.batches import noted
from txsaga.flows.branch import HEURISTIC, HEURISTIC_EVENTS, Branch, BranchEvent, BranchId, BranchState, Finish
from txsaga.flows.requests import NONE, BranchesWritten, BranchOutcome
from txsaga.resources.participant import Ages, FinishesMany, Participant

logger = logging.getLogger("txsaga")


FRESH = timedelta(seconds=1)
"""A younger decision is left to its owner, who is about to finish the branches."""
PAGE = 1_000
TOGETHER = 200
"""Branches that a resource finishes together; its answers are kept if the next ones fail."""
SCAN = 30.0
"""Seconds between two scans for prepared branches that no transaction waits for."""
AWAY = (
    errors.StoreUnavailable,
    errors.OutcomeUnknown,
    errors.NotPrimary,
    errors.ResourceManagerFailed,
    errors.CommunicationFailed,
    errors.BrokerClosed,
)
"""After these nothing else is asked of a resource for a while; any other error concerns one branch."""
SHORTEST, LONGEST = 1.0, 60.0
"""Shortest and longest pause after a failure, in seconds."""
PATIENCE = 5.0
"""Seconds that a round waits for slow resources."""

FOR_OPERATORS = HEURISTIC | {BranchState.FORGOTTEN}
"""States of branches that an operator has to handle."""

Told = tuple[Branch, Decision]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceHealth:
    """What the last round found out about a resource."""

    told: int = 0
    why: str = ""  # branches could not be finished
    away: bool = False
    earlier: tuple[str, ...] = ()  # prepared branches of an earlier incarnation of the store

    def document(self) -> dict[str, object]:
        """Return it for machine-readable output."""
        return {"told": self.told, "away": self.away, "why": self.why or None, "earlier": list(self.earlier)}


class ResourceScheduler:
    """The resources that this process works on: each by itself, with its own pause after a failure.

    Each is worked on in a thread. A caller waits a bounded time and leaves it running, so that a silent resource does
    not delay the others. If a thread never ends, only its own resource is not worked on.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._pauses: dict[str, tuple[float, float]] = {}  # how long, and until when
        self._under_way: set[str] = set()

    def is_due(self, resource: str) -> bool:
        """Return whether a resource may be tried."""
        return resource not in self._under_way and time.monotonic() >= self._pauses.get(resource, (0.0, 0.0))[1]

    def failed(self, resource: str) -> float:
        """Note a failure; return the pause in seconds."""
        pause = min(self._pauses.get(resource, (SHORTEST / 2, 0.0))[0] * 2, LONGEST)
        self._pauses[resource] = pause, time.monotonic() + pause
        return pause

    def answered(self, resource: str) -> None:
        """Note that a resource is reachable."""
        self._pauses.pop(resource, None)

    def each(self, jobs: Mapping[str, Callable[[], int]]) -> int:
        """Work on resources in parallel; return what was done in time."""
        started = []
        for resource, job in jobs.items():
            future = Future[int]()
            self._under_way.add(resource)
            name = f"txsaga-recovery-{resource}"
            threading.Thread(target=self._run, args=(resource, job, future), name=name, daemon=True).start()
            started.append(future)
        done, _ = wait(started, self._patience)
        return sum(future.result() for future in done)

    def _run(self, resource: str, job: Callable[[], int], future: Future[int]) -> None:
        done = 0
        try:
            done = job()
        except Exception:  # outermost frame of its thread: a resource's error is its own failure
            logger.exception("resource %r failed; next attempt in %.0f s", resource, self.failed(resource))
        finally:
            self._under_way.discard(resource)
            future.set_result(done)


class Orphans:
    """Rolls back prepared branches that no decision names or ever will, so that their locks do not stay for ever (R9).

    A branch that its owner may still bring to a decision is left alone. So is one that an earlier incarnation of the
    store prepared: after a restore, nothing shows what was decided after the restored moment (R8). A transaction has
    its row before its first branch, so one whose row is gone can't be decided any more. A login that does not see the
    transactions of all groups can't know that, and leaves such a branch to an engine.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.left: dict[str, int] = {}  # orphans per resource that could not be rolled back yet
        self._told: set[BranchId] = set()

    def settle(self, participant: Participant) -> tuple[int, tuple[str, ...]]:
        """Roll back a resource's orphans; return how many, and what an earlier incarnation of the store prepared."""
        identity = self._kernel.store.registry.identity
        found = {id: own_number(self._kernel, id) for id in _prepared(self._kernel, participant)}
        ours = {id: txid for id, txid in found.items() if txid is not None}
        known = self._kernel.store.work.written(set(ours.values()))
        alone = [id for id, txid in ours.items() if txid not in known]
        orphans = [id for id in alone if identity.incarnation_of(ours[id]) == identity.incarnation]
        earlier = [id for id in found if id not in ours or (id in alone and id not in orphans)]
        for id in earlier:
            self._tell(participant.name, id)
        if orphans and not self._sees_all():
            logger.warning(
                "%d branches in %r may belong to groups that this login can't see", len(orphans), participant.name
            )
            orphans = []
        orphans += [id for id, txid in ours.items() if txid in known and self._is_orphan(id, known[txid])]
        # Skip branches that were finished since they were listed.
        still = set(_prepared(self._kernel, participant)) if orphans else set[BranchId]()
        done = [id for id in orphans if id in still and self._rolled_back(participant, id, ours[id])]
        self.left[participant.name] = len(still.intersection(orphans).difference(done))
        return len(done), tuple(id.gid for id in earlier)

    def _sees_all(self) -> bool:
        with self._kernel.store.ledgers.open() as ledger:
            return ledger.sees()

    def _is_orphan(self, id: BranchId, known: BranchesWritten) -> bool:
        branch = next((each for each in known.branches if (each.number, each.attempt) == (id.number, id.attempt)), None)
        if branch is None:
            return known.decision is not None
        if branch.state in FOR_OPERATORS:
            return False
        return not branch.unfinished or (known.owner > branch.attempt and self._is_superseded(branch))

    def _is_superseded(self, branch: Branch) -> bool:
        """Return whether a later owner continues without this branch; it would wait for the branch's locks (R4)."""
        with self._kernel.store.ledgers.open() as ledger:
            life = ledger.lock(branch.txid)
            if life is None or life.lease is not None:
                return False  # the process that takes over a flow decides itself what it leaves out
            return life.owner > branch.attempt and ledger.standing(branch.txid) is None

    def _rolled_back(self, participant: Participant, id: BranchId, txid: int) -> bool:
        logger.warning("branch %s in %r belongs to no decision: rolled back", id.gid, participant.name)
        try:
            with self._kernel.announce.around(facts.Finishing, txid, about=participant.name):
                participant.finish(id, Decision.ROLLBACK)
        except errors.RetryLater:
            return False  # the session that prepared it is still alive
        return True

    def _tell(self, resource: str, id: BranchId) -> None:
        if id not in self._told:
            self._told.add(id)
            logger.error("branch %s in %r is of an earlier incarnation: settle it by hand", id.gid, resource)


KEPT = Ages(committed=timedelta(hours=1), barriers=timedelta(days=30))
"""An owner that sleeps for less than this still finds its row."""
PAUSE = 600.0
"""Seconds between two cleanups of a resource."""


class RecoveryCleanup:
    """Has resources drop what no process needs."""

    def __init__(self, kernel: Kernel, ages: Ages = KEPT) -> None:
        self._kernel, self._ages = kernel, ages
        self._due: dict[str, float] = {}

    def settle(self, participant: Participant) -> int:
        """Let a resource drop what is old enough, unless it did so recently; return the number of branches."""
        name = participant.name
        if time.monotonic() < self._due.get(name, 0.0):
            return 0
        self._due[name] = time.monotonic() + PAUSE
        try:
            with ExitStack() as page:
                over = partial(self._over, name, page)
                return participant.sweep(self._kernel.store.registry.identity.uuid.hex, self._ages, over)
        except errors.RightsMissing as missing:  # only disk space depends on it
            logger.warning("%s; its old records are kept", missing)
            return 0

    def _over(self, resource: str, page: ExitStack, branches: Sequence[BranchId]) -> Collection[BranchId]:
        """Return those that no process asks about any more; they are dropped before the next page begins."""
        page.close()
        owned = ((own_number(self._kernel, each), each) for each in branches)
        places = {(txid, each.number, each.attempt): each for txid, each in owned if txid is not None}
        if found := sorted(self._kernel.store.work.over(places.keys())):
            txids = dict.fromkeys(txid for txid, _, _ in found)
            page.enter_context(self._kernel.announce.around(facts.Tidying, *txids, about=resource))
        return [places[place] for place in found]


class Recovery:
    """Finishes the branches of decided transactions, and rolls back those that no transaction waits for."""

    name = "recovery"
    pace = Pace(1.0, 5.0)

    def __init__(self, kernel: Kernel, *, patience: float = PATIENCE, fresh: timedelta = FRESH) -> None:
        self._kernel, self._reach, self._orphans = kernel, ResourceScheduler(patience), Orphans(kernel)
        self._tidying = RecoveryCleanup(kernel)
        self._scan_at, self._fresh = 0.0, fresh
        self._recorded = cache(kernel.store.registry.resource_by_id)  # a number's resource stays the same
        self.seen: dict[str, ResourceHealth] = {}

    @property
    def orphans(self) -> dict[str, int]:
        """How many branches that no transaction names each resource still holds; the next round rolls them back."""
        return {name: count for name, count in list(self._orphans.left.items()) if count}

    def run_once(self) -> int:
        """Scan resources, finish decided branches; return how many are finished."""
        done = 0
        if time.monotonic() >= self._scan_at:
            self._scan_at = time.monotonic() + SCAN
            done += self._scan_all()
        elif orphans := self.orphans:
            done += self._scan_all(set(orphans))
        return done + self._finish_all()

    def finish(self, txid: int, resources: Set[str]) -> int:
        """Finish one decided transaction's branches in these resources now, even if another process is about to."""
        with self._kernel.store.ledgers.open() as ledger:
            decision = ledger.standing(txid)
        if decision is None:
            return 0
        branches = [each for each in self._kernel.store.work.branches(txid) if each.unfinished]
        waiting = _by_resource((each, decision) for each in branches if each.resource in resources)
        return sum(self._finish(resource, told) for resource, told in waiting.items())

    def _scan_all(self, only: Set[str] | None = None) -> int:
        enlisted = defaultdict[str, set[UUID]](set)
        for recorded in self._kernel.store.registry.enlisted():
            if only is None or recorded.name in only:
                enlisted[recorded.name].add(recorded.database)
        due = filter(self._reach.is_due, enlisted)
        return self._reach.each({name: partial(self._scan, name, enlisted[name]) for name in due})

    def _scan(self, resource: str, databases: Set[UUID]) -> int:
        try:
            participant = self._kernel.reach(resource)
            if participant.database not in databases:
                return 0  # the name leads to another database now
            done, earlier = self._orphans.settle(participant)
            self._tidying.settle(participant)
        except errors.TxSagaError as failure:
            self._failed(resource, failure, "can't be searched")
            return 0
        before = self.seen.get(resource, ResourceHealth())
        if before.away:  # it answers again: its decided branches need not wait
            self._reach.answered(resource)
            before = replace(before, why="", away=False)
        self.seen[resource] = replace(before, told=before.told + done, earlier=earlier)
        return done

    def _finish_all(self) -> int:
        done, after = 0, NONE
        while page := self._kernel.store.work.unfinished(after=after, older=self._fresh, limit=PAGE):
            after = page[-1][0][:3]
            waiting = _by_resource(page)
            due = filter(self._reach.is_due, waiting)
            done += self._reach.each({name: partial(self._finish, name, waiting[name]) for name in due})
        return done

    def _finish(self, resource: str, waiting: Sequence[Told]) -> int:
        notes, refused = list[BranchOutcome](), list[str]()
        try:
            for answer in self._answers(self._kernel.reach(resource), waiting):
                if isinstance(answer, BranchOutcome):
                    notes.append(answer)
                elif isinstance(answer, AWAY):
                    raise answer
                elif not isinstance(answer, errors.RetryLater):  # otherwise the session that prepared it is still alive
                    refused.append(str(answer))
            self._answered(resource, len(notes), len(waiting) - len(notes), "; ".join(dict.fromkeys(refused)))
        except errors.TxSagaError as failure:
            what = f"is unavailable, {len(waiting) - len(notes)} branches wait for it"
            self._failed(resource, failure, what, told=len(notes))
        return self._note(notes)

    def _answers(
        self, participant: Participant, waiting: Sequence[Told]
    ) -> Iterator[BranchOutcome | errors.TxSagaError]:
        """Finish branches; those that need no second question go together if the resource can do that."""
        plain = list[Told]()
        if isinstance(participant, FinishesMany):
            plain = [told for told in waiting if self._is_plain(*told, participant.database)]
            for at in range(0, len(plain), TOGETHER):
                yield from self._finish_many(participant, participant.name, plain[at : at + TOGETHER])
        done = {branch for branch, _ in plain}
        for branch, decision in waiting:
            if branch not in done:
                try:
                    answer: BranchOutcome | errors.TxSagaError = self._finish_one(participant, branch, decision)
                except errors.TxSagaError as reason:
                    answer = reason
                yield answer

    def _is_plain(self, branch: Branch, decision: Decision, database: UUID) -> bool:
        """Return whether only its resource has to be asked."""
        if branch.aux or self._recorded(branch.recorded).database != database:
            return False
        return decision is Decision.COMMIT or not self._is_presumed(branch)

    def _finish_many(
        self, participant: FinishesMany, resource: str, waiting: Sequence[Told]
    ) -> Iterator[BranchOutcome | errors.TxSagaError]:
        due = [(self._id(branch), _due(branch, decision)) for branch, decision in waiting]
        with self._kernel.announce.around(facts.Finishing, *(branch.txid for branch, _ in waiting), about=resource):
            found = participant.finish_many(due)
        for (branch, _), (id, decision), answer in zip(waiting, due, found, strict=True):
            yield noted(branch.txid, id, decision, answer, participant) if isinstance(answer, Finish) else answer

    def _finish_one(self, participant: Participant, branch: Branch, decision: Decision) -> BranchOutcome:
        if self._recorded(branch.recorded).database != participant.database:
            raise errors.ConfigError(f"resource {participant.name!r} points to another database than the recorded one")
        due, id = _due(branch, decision), self._id(branch)
        if decision is Decision.ROLLBACK and self._is_presumed(branch) and id in _prepared(self._kernel, participant):
            why = f"{decision.name} was decided by a later incarnation of the store, which can't know earlier decisions"
            return BranchOutcome(branch.txid, branch.number, branch.attempt, BranchEvent.FIND_HAZARD, why)
        with self._kernel.announce.around(facts.Finishing, branch.txid, about=participant.name):
            found = participant.finish(id, due)
        if branch.aux and due is Decision.ROLLBACK:
            if found is Finish.DONE:
                found = participant.fence(id)  # its lane may be about to commit it
            if found is Finish.COMMITTED:
                due, found = Decision.COMMIT, Finish.DONE  # it did, and its answer was lost
        return noted(branch.txid, id, due, found, participant)

    def _is_presumed(self, branch: Branch) -> bool:
        """Return whether only check-back decided what an earlier incarnation began (R8)."""
        identity = self._kernel.store.registry.identity
        if identity.incarnation_of(branch.txid) == identity.incarnation:
            return False
        history = self._kernel.store.overview.history(branch.txid)
        said = [each.who for each in history if each.what in Decision.ROLLBACK.audited]
        return said in ([], [CHECK_BACK])

    def _note(self, notes: Sequence[BranchOutcome]) -> int:
        if not notes:
            return 0
        with self._kernel.announce.around(facts.Noting, *dict.fromkeys(note.txid for note in notes)):
            answers = self._kernel.store.work.write(notes)
        for note, answer in zip(notes, answers, strict=True):
            if answer is True and note.event in HEURISTIC_EVENTS:
                logger.error(
                    "branch %d of transaction %d: %s; see `txsaga branch heuristics`", note.number, note.txid, note.why
                )
        return sum(answer is True for answer in answers)

    def _answered(self, resource: str, told: int, left: int, why: str) -> None:
        before = self.seen.get(resource, ResourceHealth())
        self._reach.answered(resource)
        self.seen[resource] = replace(before, told=before.told + told, why=why, away=False)
        if why and why != before.why:
            logger.error("%d branches in resource %r are not finished: %s", left, resource, why)

    def _failed(self, resource: str, failure: errors.TxSagaError, what: str, *, told: int = 0) -> None:
        pause, before = self._reach.failed(resource), self.seen.get(resource, ResourceHealth())
        unknown = isinstance(failure, errors.ResourceUnknown)
        self.seen[resource] = replace(before, told=before.told + told, why=str(failure), away=not unknown)
        said = "is not registered here; its branches wait for a process that knows it" if unknown else what
        logger.warning("resource %r %s; next attempt in %.0f s: %s", resource, said, pause, failure)

    def _id(self, branch: Branch) -> BranchId:
        transaction = self._kernel.store.registry.identity.transaction(branch.txid)
        return BranchId(transaction, branch.number, branch.attempt)


def own_number(kernel: Kernel, branch: BranchId) -> int | None:
    """Return the number of a branch's transaction; None if the store's incarnation does not know it."""
    try:
        return kernel.store.registry.identity.own(branch.transaction)
    except errors.UnknownTransaction:
        return None


def _prepared(kernel: Kernel, participant: Participant) -> Sequence[BranchId]:
    return participant.prepared(kernel.store.registry.identity.uuid.hex)


def _by_resource(waiting: Iterable[Told]) -> Mapping[str, Sequence[Told]]:
    found = defaultdict[str, list[Told]](list)
    for told in waiting:
        found[told[0].resource].append(told)
    return found


def _due(branch: Branch, decision: Decision) -> Decision:
    """Return what to do with a branch: COMMIT only if the decision names it (R9)."""
    return decision if branch.state is BranchState.PREPARED else Decision.ROLLBACK
