"""
Journals of a coordinated block: a resource's statements are recorded, and executed when it is asked for its vote.

A participant that takes its statements with the vote request does all in one round trip, and its locks begin there; for
any other they are executed in a session right before the request. If every journal only adds rows, all are asked at
once; else one after the other, in the order in which the block names them, so that no two blocks wait for each other in
a cycle that no database sees. Journals that wait nevertheless, as for what a trigger locks, are rolled back and asked
again in that order. If a journal is never executed, its resource is unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from threading import Lock
from typing import Protocol, cast

from txsaga.core.decision import Decision
from txsaga.core.fibers import current_fiber
from txsaga.errors import ConfigError, Deadlocked, TimedOut, TransactionError
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.flows.journal import Journal, only_adds, taken
from txsaga.flows.ports import Journals
from txsaga.flows.sessions_in_loop import ForwardingSession, away_with, looped
from txsaga.flows.step_records import MAIN, Journalled
from txsaga.resources.participant import EnlistedBranch, LockPatience, Participant

NO_STEP = 0
WAITED = (TimedOut, Deadlocked)


class SwiftJournal(EnlistedBranch, Protocol):
    """A session whose work is sent with the vote request."""

    def take_back(self) -> Callable[[], None]:
        """Roll back what it voted; once the returned function has waited for that, it can be asked again."""


class TakesJournals(Protocol):
    """What opens such sessions."""

    def enlist_journal(
        self, branch: BranchId, statements: Sequence[Journalled], *, waits: LockPatience
    ) -> SwiftJournal:
        """Open a session for a branch; `waits` is how long its statements wait for locks."""


class JournalRoute(Enum):
    """How a resource is used; its first use determines it."""

    SESSION = auto()
    JOURNAL = auto()


class PendingJournals:
    """What the resources of one transaction are to do at their votes.

    Threads and tasks write concurrently, so nothing here waits: not for a session, nor for the thread that opens one.
    """

    def __init__(self) -> None:
        self._journals: dict[str, Journal] = {}
        self._ways: dict[str, JournalRoute] = {}
        self._taken, self._turn = False, Lock()
        self.together = False  # they are executed at the same time
        self.adds = False  # they could be: they lock no existing row

    def claim(self, key: str, way: JournalRoute) -> None:
        """Fix the route by which a resource is used; refuse the other."""
        if self._ways.setdefault(key, way) is not way:
            raise TransactionError(
                f"resource {key!r} is worked in by tx.on and by tx.journal; take one of them for it: what tx.on has "
                "done would stand before what the journal does at the end"
            )

    def unclaim(self, key: str) -> None:
        """Allow both routes again: nothing was done in the resource."""
        self._ways.pop(key, None)

    def journal(self, key: str, participant: Participant, require_open: Callable[[], None]) -> Journal:
        """Return the journal of a resource, always the same one."""
        if not hasattr(participant, "do"):
            raise ConfigError(f"{key!r} takes no statements; work in it by tx.on({key!r})")

        def require_writable() -> None:
            require_open()
            self.claim(key, JournalRoute.JOURNAL)

        if key in self._ways:
            self.claim(key, JournalRoute.JOURNAL)
        with self._turn:
            if self._taken:
                raise TransactionError("the votes are under way; let all threads end before the block does")
            return self._journals.setdefault(key, Journal(require_writable))

    def take(self, participants: Mapping[str, Participant]) -> Mapping[str, Sequence[Journalled]]:
        """Return the statements of each resource that has some, in the given order; none can be added any more."""
        with self._turn:
            self._taken = True
        found = dict[str, Sequence[Journalled]]()
        self.adds, patient = True, 0
        for key, participant in participants.items():
            journal = self._journals.get(key)
            if journal is not None and (entries := taken(journal)):
                found[key] = [Journalled(NO_STEP, at, key, MAIN, *each) for at, each in enumerate(entries, 1)]
                self.adds = self.adds and hasattr(participant, "enlist_journal") and _only_add(found[key])
                patient += not getattr(participant, "waits_briefly", False)
        # A cycle is detected only if all but one of its members wait briefly.
        self.adds = self.adds and patient < 2
        self.together = len(found) > 1 and self.adds
        return found

    def forget(self) -> None:
        """Drop the journals, which refer to their block."""
        self._journals.clear()


def _only_add(statements: Sequence[Journalled]) -> bool:
    for each in statements:
        if not only_adds(each.text):
            return False
    return True


def waited(answers: Iterable[object]) -> bool:
    """Return whether journals may have waited for each other, and nothing else went wrong."""
    wrong = [each for each in answers if isinstance(each, Exception)]
    return bool(wrong) and all(isinstance(each, WAITED) for each in wrong)


def enlist_journal(
    participant: Participant, branch: BranchId, statements: Sequence[Journalled], *, waits: LockPatience
) -> EnlistedBranch:
    """Open a session that executes a journal at its vote."""
    if hasattr(participant, "enlist_journal"):
        opens = participant if current_fiber() is None else looped(participant)
        return cast(TakesJournals, opens).enlist_journal(branch, statements, waits=waits)
    return away_with(partial(_DoneFirst, participant, branch, statements))


class _DoneFirst(ForwardingSession):
    """A session in which a journal is executed before its vote or commit."""

    def __init__(self, participant: Participant, branch: BranchId, statements: Sequence[Journalled]) -> None:
        super().__init__(participant.enlist(branch))
        self._participant, self._statements = participant, statements

    def prepare(self) -> Callable[[], Vote]:
        """Execute the journal and ask for the vote."""
        self._do()
        return self._session.prepare()

    def finish(self, decision: Decision) -> Callable[[], Finish]:
        """Carry out the decision."""
        return self._session.finish(decision)

    def commit(self, transaction: str | None) -> Callable[[], None]:
        """Execute the journal and commit in one phase."""
        self._do()
        return self._session.commit(transaction)

    def leave(self) -> None:
        """Give the session back."""
        self._session.leave()

    def _do(self) -> None:
        cast(Journals, self._participant).do(self._session, self._statements)
