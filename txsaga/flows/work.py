"""
The work of one coordinated transaction in its resources: a session for each branch, opened on first use.

All resources vote at the same time: each request is sent to all of them before one is waited for, so that no lock is
held longer than the slowest answer takes. A lost session is never opened again in the same transaction. If this process
dies, each resource rolls back what was not prepared, and what was prepared waits for recovery.

A journal records a resource's statements. They are executed when the block ends, before the votes, in the order in
which the block names its resources: so no two blocks wait for each other in a cycle that no database sees. If a journal
is never executed, its resource is unchanged.

Within an event loop, a participant with non-blocking sessions provides them; any other is called in threads. Otherwise
one slow resource would stop everything else in the loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from threading import Lock
from typing import NamedTuple, TypeVar, cast

from txsaga import errors
from txsaga.core import facts
from txsaga.core.announcer import Announcer
from txsaga.core.decision import Decision
from txsaga.core.failure import on_failure
from txsaga.core.fibers import current_fiber, run_blocking, sent_away
from txsaga.core.retry import patiently
from txsaga.flows.batches import noted
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.flows.journal import Journal, Journalled, taken
from txsaga.flows.requests import BranchOutcome, BranchVote
from txsaga.flows.self_deadlock import Held, SelfDeadlockDetector
from txsaga.flows.step import MAIN
from txsaga.resources.participant import Driven, EnlistedBranch, Journals, Looping, Opens, Participant

logger = logging.getLogger("txsaga")


def looped(opens: Opens) -> Opens:
    """Return what opens a participant's sessions within a loop; `ConfigError` if it can't be used there."""
    return cast(Looping, opens).in_loop() if hasattr(opens, "in_loop") else _InThreads(opens)


def enlisted(participant: Participant, branch: BranchId, *, driver: bool) -> EnlistedBranch:
    """Open a session of a participant, within a loop or not."""
    opens: Opens = participant if current_fiber() is None else looped(participant)
    if not driver:
        return opens.enlist(branch)
    if not hasattr(opens, "enlist_driver"):
        raise errors.TransactionError(f"resource {participant.name!r} has no driver connection; leave driver=True out")
    return cast(Driven, opens).enlist_driver(branch)


def execute(participant: Participant, session: EnlistedBranch, statements: Sequence[Journalled]) -> None:
    """Execute a journal in a session, in a thread if the session's calls run there."""
    if not isinstance(participant, Journals):
        raise errors.ConfigError(f"{participant.name!r} takes no statements, so it has no journal")
    if isinstance(session, _Away):
        run_blocking(partial(participant.do, session.blocking, statements))
    else:
        participant.do(session, statements)


class _InThreads:
    """A participant whose sessions block."""

    def __init__(self, opens: Opens) -> None:
        self._opens = opens

    def enlist(self, branch: BranchId) -> EnlistedBranch:
        return _Away(run_blocking(partial(self._opens.enlist, branch)))


class _Away:
    """A session that blocks, called in threads."""

    def __init__(self, blocking: EnlistedBranch) -> None:
        self.blocking = blocking

    @property
    def handle(self) -> object:
        """What the user works with; it blocks, so it is called through `asyncio.to_thread`."""
        return self.blocking.handle

    def prepare(self) -> Callable[[], Vote]:
        return sent_away(lambda: self.blocking.prepare()())

    def finish(self, decision: Decision) -> Callable[[], Finish]:
        return sent_away(lambda: self.blocking.finish(decision)())

    def commit(self, transaction: str | None) -> Callable[[], None]:
        return sent_away(lambda: self.blocking.commit(transaction)())

    def leave(self) -> None:
        run_blocking(self.blocking.leave)


AGAINST = {
    Finish.COMMITTED: errors.HeuristicCommit,
    Finish.ROLLED_BACK: errors.HeuristicRollback,
    Finish.HAZARD: errors.HeuristicHazard,
    Finish.MIXED: errors.HeuristicMixed,
}


class Use(Enum):
    """How a resource is used; its first use determines it."""

    SESSION = auto()
    JOURNAL = auto()


@dataclass(slots=True)
class BranchPart:
    """One branch, its resource, and its session in this process."""

    branch: BranchId
    participant: Participant
    aux: bool = False  # a unit of an auxiliary lane
    session: EnlistedBranch | None = None
    use: Use | None = None
    journal: Journal | None = None
    held: Held = field(default_factory=dict)  # what its flow holds prepared in the same database
    driven: bool = False  # the user works with the driver's own connection
    used: bool = False  # a session was opened, even if it is closed by now
    asked: bool = False  # asked for its vote
    left: bool = False  # left at its vote, having written nothing
    decided: bool = False  # its own commit was the decision
    opening: Lock = field(default_factory=Lock, repr=False, compare=False)

    @property
    def can_vote(self) -> bool:
        """Whether it can hold a yes vote."""
        return self.participant.capabilities.two_phase


class PhaseTwoResult(NamedTuple):
    """What resources answered in the second phase.

    If an answer were lost here, a transaction that a resource decided differently would look like a plain success.
    """

    notes: list[BranchOutcome]
    silent: dict[str, Exception]
    against: list[errors.XaError]  # heuristic outcomes: decided outside txsaga

    def note(self, txid: int, part: BranchPart, decision: Decision, found: Finish) -> None:
        """Record the answer of one resource."""
        self.notes.append(noted(txid, part.branch, decision, found, part.participant))
        if found in AGAINST:
            name = part.participant.name
            error = AGAINST[found](f"resource {name!r}: {self.notes[-1].why}; transaction {txid} decided otherwise")
            logger.error("%s", error)
            self.against.append(error)


Answer = TypeVar("Answer")

NO_STEP = 0


class Work:
    """The branches of one transaction, with their sessions."""

    def __init__(self, txid: int, announce: Announcer, patience: float = 0.0) -> None:
        self._txid, self._announce, self._patience = txid, announce, patience
        self._parts: dict[str, BranchPart] = {}
        self._claiming, self._ending = Lock(), False
        self.self_deadlocks = SelfDeadlockDetector(txid)

    def add(self, key: str, part: BranchPart) -> None:
        """Add a branch to work in."""
        self._parts[key] = part

    def part(self, key: str) -> BranchPart:
        """Return a branch and its resource."""
        return self._parts[key]

    @property
    def used(self) -> list[str]:
        """The branches that have a session here."""
        return [key for key, part in self._parts.items() if part.session is not None]

    @property
    def empty(self) -> set[int]:
        """The numbers of the branches in which nothing was done, or that left because nothing was changed."""
        return {part.branch.number for part in self._parts.values() if part.left or not (part.used or part.aux)}

    def last(self, *, alone: bool = True) -> str | None:
        """The branch that commits in one phase: one that can't vote, or, with `alone`, the only one."""
        opened = {key: self._parts[key] for key in self.used}
        unable = [key for key, part in opened.items() if not part.can_vote and not part.aux]
        if unable or not alone or len(opened) != 1:
            return next(iter(unable), None)
        ((key, part),) = opened.items()
        return key if part.participant.capabilities.last_resource and not part.aux else None

    def refuse_open_units(self) -> None:
        """Raise if a unit is open that can't follow the outcome."""
        for part in self._parts.values():
            if part.aux and part.session is not None and not part.can_vote:
                raise errors.TransactionError(
                    f"the open unit of lane {part.participant.name!r} can't follow the outcome, "
                    f"because {part.participant.capabilities.kind} can't vote: commit it or roll it back before the end"
                )

    def handle(self, key: str, *, driver: bool = False) -> object:
        """Return what the user works with in a branch, opening its session."""
        part = self._named_part(key)
        self._claim(part, Use.SESSION)
        session = part.session or self._opened(key, part, Use.SESSION, driver=driver)
        if part.driven is not driver:
            raise errors.TransactionError(
                f"the session in {key!r} was opened the other way; use driver=True always or never"
            )
        return session.handle

    def journal(self, key: str, require_open: Callable[[], None]) -> Journal:
        """Return the journal that a resource executes when the block ends: the same each time."""
        part = self._named_part(key)
        if part.aux:
            raise errors.TransactionError(f"{key!r} is a unit of a lane, which has no journal; work in it by the lane")
        if not hasattr(part.participant, "do"):
            raise errors.ConfigError(f"{key!r} takes no statements; work in it by tx.on({key!r})")

        def require_writable() -> None:
            require_open()
            self._claim(part, Use.JOURNAL)

        if part.use is not None:
            self._claim(part, Use.JOURNAL)
        with self._claiming:
            if self._ending:
                raise errors.TransactionError("the block is ending; let all its threads end before it")
            if part.journal is None:
                part.journal = Journal(require_writable)
            return part.journal

    def do_journals(self) -> None:
        """Execute the journals; nothing can be added to them any more."""
        with self._claiming:
            self._ending = True
        due = [(key, taken(part.journal)) for key, part in self._parts.items() if part.journal is not None]
        for key, entries in due:
            if entries:
                self.do(key, [Journalled(NO_STEP, at, key, MAIN, *each) for at, each in enumerate(entries, 1)])

    def do(self, key: str, statements: Sequence[Journalled]) -> None:
        """Execute the statements of a journal in the session of a branch."""
        part = self._named_part(key)
        session = self._opened(key, part, Use.JOURNAL)
        try:
            execute(part.participant, session, statements)
        except Exception as error:
            self.refuse_own_lock(key, error)
            raise

    def refuse_own_lock(self, key: str, error: BaseException) -> None:
        """Raise why a statement of this branch was interrupted, if its transaction waited for itself."""
        if (found := self.self_deadlocks.found(key, error)) is not None:
            raise found from error

    def explain_own_lock(self, error: BaseException) -> None:
        """Add that reason as a note to an error that was raised elsewhere."""
        for key in self.used:
            if (found := self.self_deadlocks.found(key, error)) is not None:
                error.add_note(str(found))

    def prepare(self, *, besides: str | None = None) -> dict[str, Vote]:
        """Ask all branches for their votes; a no is raised once all have answered."""
        return self.heard(self.ask(key for key in self.used if key != besides))

    def heard(self, answers: Mapping[str, Vote | Exception]) -> dict[str, Vote]:
        """Return the votes among these answers, or raise a no; a branch with nothing to write leaves."""
        votes = dict[str, Vote]()
        for key, answer in answers.items():
            if isinstance(answer, Exception):
                if (found := self.self_deadlocks.found(key)) is not None:
                    answer.add_note(str(found))
                answer.add_note(f"this was the vote of resource {self._parts[key].participant.name!r}")
                raise answer
            votes[key] = answer
            if answer is Vote.READ_ONLY:
                self._parts[key].left = True
                self.drop(key)
        return votes

    def ask(self, keys: Iterable[str]) -> dict[str, Vote | Exception]:
        """Ask these branches for their votes."""
        due = set(keys)
        for key in due:
            self._parts[key].asked = True
        return self._each(facts.Voting, due, lambda session: session.prepare())

    def take_out(self, key: str) -> EnlistedBranch:
        """Take a branch out of the transaction; the caller rolls it back."""
        self.self_deadlocks.leave([key])
        session, self._parts[key].session = self._parts[key].session, None
        assert session is not None
        return session

    def named(
        self, votes: Mapping[str, Vote], *, besides: Collection[str] = (), last: str | None = None
    ) -> tuple[BranchVote, ...]:
        """Name every branch: by its vote, the last resource as prepared, one where nothing was done as read-only.

        What is left out keeps its state: whatever it holds is rolled back.
        """
        late = [key for key in self.used if key not in votes and key != last and key not in besides]
        if late:  # by a user's thread: named as voted, its work would be split off
            raise errors.TransactionError(
                f"work in {late[0]!r} began while the votes were under way; let all threads end before the block does"
            )
        return tuple(
            BranchVote(
                part.branch.number,
                part.branch.attempt,
                votes.get(key) or (Vote.PREPARED if part.session is not None else Vote.READ_ONLY),
            )
            for key, part in self._parts.items()
            if key not in besides and (key in votes or part.session is not None or not (part.used or part.aux))
        )

    def commit(self, key: str, transaction: str | None = None) -> None:
        """Commit one branch in one phase; with a transaction, that commit is its decision."""
        part = self._parts[key]
        assert part.session is not None
        self._tell(facts.Working, part)
        part.session.commit(transaction)()
        part.decided = transaction is not None
        self._tell(facts.Worked, part)
        self.drop(key)

    def release(self) -> PhaseTwoResult:
        """Roll back branches that were not asked for their vote: their locks need not wait for a decision."""
        unasked = [key for key in self.used if not self._parts[key].asked]
        told = self.finish(Decision.ROLLBACK, unasked)
        for key in unasked:
            self.drop(key)
        return told

    def finish(self, decision: Decision, keys: Iterable[str] | None = None) -> PhaseTwoResult:
        """Finish these branches, or all, by the decision."""
        asked = set(self.used if keys is None else keys)
        self.self_deadlocks.leave(asked)
        told = PhaseTwoResult([], {}, [])
        for part in self._parts.values():
            if part.decided and keys is None:
                told.note(self._txid, part, decision, Finish.DONE if decision is Decision.COMMIT else Finish.COMMITTED)
        for key, answer in self._each(facts.Finishing, asked, lambda session: session.finish(decision)).items():
            part = self._parts[key]
            if isinstance(answer, Exception):
                told.silent[part.participant.name] = answer
            else:
                told.note(self._txid, part, decision, answer)
        return told

    def leave(self) -> None:
        """Give every session back; an interrupt in one does not keep the others."""
        with on_failure(self.leave):
            for key, part in self._parts.items():
                self.drop(key)
                part.journal = None  # it refers to the block
        self.self_deadlocks.close()

    def drop(self, key: str) -> None:
        """Give one session back."""
        part = self._parts[key]
        session, part.session = part.session, None
        if session is None:
            return
        self.self_deadlocks.leave([key])
        try:
            session.leave()
        except Exception:  # it is over anyway; the resource rolls back what was not prepared
            logger.warning("the session of %r could not be released", key, exc_info=True)

    def _claim(self, part: BranchPart, use: Use) -> None:
        """Fix how a resource is used. Nothing here waits for a session, nor for the thread that opens one."""
        with self._claiming:
            part.use = part.use or use
            if part.use is not use:
                raise errors.TransactionError(
                    f"resource {part.participant.name!r} is used by tx.on and by tx.journal; use only one of them for "
                    "it: the journal runs at the end, after the work of tx.on"
                )

    def _opened(self, key: str, part: BranchPart, use: Use, *, driver: bool = False) -> EnlistedBranch:
        """Return the session of a branch: the first of several threads opens it, the others find it."""
        with part.opening:
            if part.session is None:
                if part.used:
                    raise errors.TransactionError(
                        f"the session in {key!r} is closed; it can't be opened again in its transaction"
                    )
                self._claim(part, use)
                part.driven = driver
                with on_failure(setattr, part, "use", None):  # nothing was done: both uses are possible again
                    self._open(key, part)
            assert part.session is not None
            return part.session

    def _open(self, key: str, part: BranchPart) -> None:
        with self.self_deadlocks.room(key, part.participant, unit=part.aux):
            opening = partial(enlisted, part.participant, part.branch, driver=part.driven)
            session = patiently(opening, self._patience)
        part.used, part.session = True, session  # the session last: it is checked first
        self.self_deadlocks.enter(key, part.participant, session, unit=part.aux, held=part.held)

    def _named_part(self, key: str) -> BranchPart:
        part = self._parts.get(key)
        if part is None:
            known = ", ".join(repr(key) for key, part in self._parts.items() if not part.aux)
            raise errors.TransactionError(
                f"resource {key!r} is not part of this transaction, which was opened for {known}; name it there"
            )
        return part

    def _each(
        self, fact: type[facts.Fact] | None, keys: set[str], send: Callable[[EnlistedBranch], Callable[[], Answer]]
    ) -> dict[str, Answer | Exception]:
        told = fact if self._announce else None
        waiting: dict[str, Callable[[], Answer]] = {}
        found: dict[str, Answer | Exception] = {}
        for key, part in self._parts.items():
            if key in keys and part.session is not None:
                if told is not None:
                    self._tell(told, part)
                try:
                    waiting[key] = send(part.session)
                except Exception as error:  # noqa: BLE001  # any error of a resource is its answer
                    found[key] = error

        for key, wait in waiting.items():
            try:
                found[key] = wait()
            except Exception as error:  # noqa: BLE001  # the same
                found[key] = error
            else:
                if told is not None:
                    self._tell(facts.AFTER[told], self._parts[key])
        return found

    def _tell(self, fact: type[facts.Fact], part: BranchPart) -> None:
        if self._announce:
            self._announce(fact((self._txid,), about=part.participant.name))
