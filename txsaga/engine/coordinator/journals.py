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
from functools import partial
from typing import Protocol, cast

from txsaga.engine.coordinator.looped import away_with, looped
from txsaga.engine.journal import Entry
from txsaga.engine.waiting import stack
from txsaga.errors import ConfigError, xa
from txsaga.model.branch import BranchId, Finish, Vote
from txsaga.model.decision import Decision
from txsaga.model.flow_step import MAIN, Journalled
from txsaga.model.journal import only_adds
from txsaga.ports.flows import Journals
from txsaga.ports.participants import Enlisted, Participant

NO_STEP = 0
WAITED = (xa.TimedOut, xa.Deadlocked)


class Swift(Enlisted, Protocol):
    """A session whose work goes with its vote."""

    def take_back(self) -> Callable[[], None]:
        """Roll back what it voted; once the function that is returned has waited for it, it can be asked again."""


class TakesJournals(Protocol):
    """What opens such sessions."""

    def enlist_journal(self, branch: BranchId, statements: Sequence[Journalled], *, together: bool) -> Swift:
        """Open a session for a branch; `together` where others are asked at the same time, and may wait in turn."""


def statements_of(resource: str, entries: Sequence[Entry]) -> Sequence[Journalled]:
    """Number what a journal holds."""
    return [Journalled(NO_STEP, at, resource, MAIN, *each) for at, each in enumerate(entries, 1)]


def require_journal(participant: Participant) -> None:
    """Refuse a resource that takes no statements."""
    if not hasattr(participant, "do"):
        raise ConfigError(f"{participant.name!r} takes no statements; work in it by tx.on({participant.name!r})")


def go_together(journals: Mapping[Participant, Sequence[Journalled]]) -> bool:
    """Tell whether journals can be done at the same time."""
    return all(hasattr(each, "enlist_journal") for each in journals) and all(
        only_adds(statement.text) for journal in journals.values() for statement in journal
    )


def waited(answers: Iterable[object]) -> bool:
    """Tell whether journals may have waited for each other, and nothing else is wrong."""
    wrong = [each for each in answers if isinstance(each, Exception)]
    return bool(wrong) and all(isinstance(each, WAITED) for each in wrong)


def enlist_journal(
    participant: Participant, branch: BranchId, statements: Sequence[Journalled], *, together: bool
) -> Enlisted:
    """Open a session that does a journal at its vote."""
    if hasattr(participant, "enlist_journal"):
        opens = participant if stack() is None else looped(participant)
        return cast(TakesJournals, opens).enlist_journal(branch, statements, together=together)
    return away_with(partial(_DoneFirst, participant, branch, statements))


class _DoneFirst:
    """A session in which a journal is done before whatever it is asked."""

    def __init__(self, participant: Participant, branch: BranchId, statements: Sequence[Journalled]) -> None:
        self._participant, self._statements = participant, statements
        self._session = participant.enlist(branch)

    @property
    def handle(self) -> object:
        """What the statements are done with."""
        return self._session.handle

    @property
    def number(self) -> int | None:
        """How the server numbers it."""
        return getattr(self._session, "number", None)

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
