"""
Journals of a coordinated block: what a resource is to do is written down, and done when it is asked for its vote.

A participant that takes its statements with the question does all of it in one round trip, and its locks begin there;
in any other they are done in a session right before the question. Where every journal only adds rows, all of them are
asked at once; else one after the other, in the order in which the block names them, so that two blocks never wait for
each other in a circle that no database sees. Journals that wait in spite of that, as for what a trigger locks, are
taken back and asked again in that order. If a journal is never done, nothing of its resource was.
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
from txsaga.flows.sessions_in_loop import Behind, away_with, looped
from txsaga.flows.step_records import MAIN, Journalled
from txsaga.resources.participant import EnlistedBranch, LockPatience, Participant

NO_STEP = 0
WAITED = (TimedOut, Deadlocked)


class SwiftJournal(EnlistedBranch, Protocol):
    """A session whose work goes with its vote."""

    def take_back(self) -> Callable[[], None]:
        """Roll back what it voted; once the function that is returned has waited for it, it can be asked again."""


class TakesJournals(Protocol):
    """What opens such sessions."""

    def enlist_journal(
        self, branch: BranchId, statements: Sequence[Journalled], *, waits: LockPatience
    ) -> SwiftJournal:
        """Open a session for a branch, whose statements wait so long for somebody's lock."""


class JournalRoute(Enum):
    """How a resource is worked in; whoever is first says."""

    SESSION = auto()
    JOURNAL = auto()


class WrittenDown:
    """What the resources of one transaction are to do at their votes.

    Threads and tasks write at once, so nothing here waits: not for a session, nor for who opens one.
    """

    def __init__(self) -> None:
        self._journals: dict[str, Journal] = {}
        self._ways: dict[str, JournalRoute] = {}
        self._taken, self._turn = False, Lock()
        self.together = False  # they are done at the same time
        self.adds = False  # they could be, and no row that is there is locked by them

    def claim(self, key: str, way: JournalRoute) -> None:
        """Have a resource be worked in one way; refuse the other."""
        if self._ways.setdefault(key, way) is not way:
            raise TransactionError(
                f"resource {key!r} is worked in by tx.on and by tx.journal; take one of them for it: what tx.on has "
                "done would stand before what the journal does at the end"
            )

    def unclaim(self, key: str) -> None:
        """Let a resource be worked in either way again: nothing was done in it."""
        self._ways.pop(key, None)

    def journal(self, key: str, participant: Participant, require_open: Callable[[], None]) -> Journal:
        """Return the journal of a resource: the same each time."""
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
        """Return the statements of each resource that has some, in the order of these; none is added any more."""
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
        # What waits in a circle is found out where all but one of it waits briefly.
        self.adds = self.adds and patient < 2
        self.together = len(found) > 1 and self.adds
        return found

    def forget(self) -> None:
        """Let go of the journals: they hold their block."""
        self._journals.clear()


def _only_add(statements: Sequence[Journalled]) -> bool:
    for each in statements:
        if not only_adds(each.text):
            return False
    return True


def waited(answers: Iterable[object]) -> bool:
    """Tell whether journals may have waited for each other, and nothing else is wrong with them."""
    wrong = [each for each in answers if isinstance(each, Exception)]
    return bool(wrong) and all(isinstance(each, WAITED) for each in wrong)


def enlist_journal(
    participant: Participant, branch: BranchId, statements: Sequence[Journalled], *, waits: LockPatience
) -> EnlistedBranch:
    """Open a session that does a journal at its vote."""
    if hasattr(participant, "enlist_journal"):
        opens = participant if current_fiber() is None else looped(participant)
        return cast(TakesJournals, opens).enlist_journal(branch, statements, waits=waits)
    return away_with(partial(_DoneFirst, participant, branch, statements))


class _DoneFirst(Behind):
    """A session in which a journal is done before whatever it is asked."""

    def __init__(self, participant: Participant, branch: BranchId, statements: Sequence[Journalled]) -> None:
        super().__init__(participant.enlist(branch))
        self._participant, self._statements = participant, statements

    def prepare(self) -> Callable[[], Vote]:
        """Do the journal and ask for the vote."""
        self._do()
        return self._session.prepare()

    def finish(self, decision: Decision) -> Callable[[], Finish]:
        """Do what was decided."""
        return self._session.finish(decision)

    def commit(self, transaction: str | None) -> Callable[[], None]:
        """Do the journal and commit in one phase."""
        self._do()
        return self._session.commit(transaction)

    def leave(self) -> None:
        """Give the session back."""
        self._session.leave()

    def _do(self) -> None:
        cast(Journals, self._participant).do(self._session, self._statements)
