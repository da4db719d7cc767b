"""
A participant: one resource that votes on a transaction and then does what is decided.

What is sent to a resource and what is waited for are two calls, so that one thread has many resources at work at the
same time. Errors: `VotedNo` and the other `XaError`s; `StoreUnavailable` and `ResourceManagerFailed` when
the resource can't be reached. Whoever calls holds nothing of the home database meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable
from uuid import UUID

from txsaga.core.decision import Decision
from txsaga.errors import TxSagaError
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.resources.capabilities import Capabilities

if TYPE_CHECKING:
    from txsaga.core.identity import StoreId
from txsaga.resources.reservations import Reservations
from txsaga.store.right import Right

Over = Callable[[Sequence[BranchId]], Collection[BranchId]]
"""Tells of which branches the decision was acknowledged."""


class Ages(NamedTuple):
    """How long a resource keeps what tells of branches that are over."""

    committed: timedelta
    barriers: timedelta  # longer than any local transaction can last: one that is late must find them


class LockPatience(Enum):
    """How long the statements of a journal wait for somebody's lock."""

    PATIENTLY = auto()
    BRIEFLY = auto()  # other resources are asked at the same time, and may wait for each other in a circle
    SHORTLY = auto()  # others share the branch, or wait in line behind it


class EnlistedBranch(Protocol):
    """The work of one branch, open in this process on a session of its own."""

    @property
    def handle(self) -> object:
        """What the user works with: a SQLAlchemy connection, a folder, a client."""

    def prepare(self) -> Callable[[], Vote]:
        """Ask for the vote; the function that is returned waits for it.

        A vote of yes survives this process and the resource's own crash. Any error is a no, or unknown, and the branch
        is rolled back. A resource that says yes and holds nothing is caught here.
        """

    def finish(self, decision: Decision) -> Callable[[], Finish]:
        """Do what was decided, on the session that prepared; the function that is returned waits for it.

        ROLLBACK is for any moment. An error leaves it to recovery.
        """

    def commit(self, transaction: str | None) -> Callable[[], None]:
        """Commit in one phase, leaving the evidence of the branch behind; the function that is returned waits.

        With a transaction its own evidence is left too, and that commit is the decision: others find it, or write the
        barrier there first (R12). `DecidedOtherwise` when a barrier stands; `OutcomeUnknown` when nobody can
        tell.
        """

    def leave(self) -> None:
        """Give the session back. What was prepared stays prepared, what was not is rolled back."""


class Opens(Protocol):
    """Opens the sessions of branches."""

    def enlist(self, branch: BranchId) -> EnlistedBranch:
        """Open a session with a transaction for a branch. A session that is lost is never opened again inside it."""


class Participant(Opens, Protocol):
    """One registered resource."""

    @property
    def name(self) -> str:
        """The name that it is registered under."""

    @property
    def database(self) -> UUID:
        """The uuid of this very resource: a name that leads elsewhere later is not believed."""

    @property
    def capabilities(self) -> Capabilities:
        """What its kind can do."""

    def probe(self) -> None:
        """Raise `ConfigError`, with the remedy, unless it can vote as its kind does; nothing is written.

        `TransactionsRejected` where it could, but begins none now.
        """

    def finish(self, branch: BranchId, decision: Decision) -> Finish:
        """Do what was decided, from any process, as often as it is asked.

        What is gone is told by the evidence that its own commit left: gone with a row is committed, gone without one
        is rolled back, whoever did it. `RetryLater` while the session that prepared it still holds it.
        """

    def fence(self, branch: BranchId) -> Finish:
        """Make a commit in one phase impossible that is under way or late: COMMITTED where it was first, else DONE.

        `RetryLater` while nobody can tell, because it is under way.
        """

    def prepared(self, store: str) -> Sequence[BranchId]:
        """Return every prepared branch that a store of this uuid coordinates; what others prepared is not touched."""

    def forget(self, branch: BranchId) -> None:
        """Drop whatever is kept of a branch that is finished."""

    def sweep(self, store: str, ages: Ages, over: Over) -> int:
        """Drop what is kept for so long of branches of a store, so many at a time; return of how many.

        Only of those that `over` gives back: nobody asks about them any more. Where nothing is kept, or it goes
        by itself, there is nothing to do.
        """

    def close(self) -> None:
        """Give back what was opened here."""


class Driven(Protocol):
    """A participant that gives the connection of its driver to work with."""

    def enlist_driver(self, branch: BranchId) -> EnlistedBranch:
        """Do what `enlist` does; the handle is the driver's own connection."""


class Looping(Protocol):
    """A participant whose sessions need not block within an event loop; every other one is spoken to in threads."""

    def in_loop(self) -> Opens:
        """Return what opens them on a stack that waits as a task does; `ConfigError` where it can't."""


class LockView(Protocol):
    """A look at sessions, from a session of its own."""

    def blocked(self, numbers: Sequence[int]) -> tuple[int, int] | None:
        """Return which of these sessions waits for which other, directly or behind strangers; who may not look, none.

        The numbers are what `number_of` said.
        """

    def interrupt(self, waiter: int, holder: int) -> bool:
        """Cancel the statement by which one waits for the other, if it still does; False if not, or not allowed."""

    def close(self) -> None:
        """Give back what was opened to look."""


class Crowded(Protocol):
    """A participant in which sessions of one transaction may wait for each other."""

    def number_of(self, session: EnlistedBranch) -> int | None:
        """Return how its server numbers a session that was enlisted here; None when it is the branch's no more."""

    def is_cancelled(self, error: BaseException) -> bool:
        """Tell whether an error is that of a statement that was cancelled."""

    def look(self) -> LockView:
        """Look who waits for whom."""


@runtime_checkable
class FinishesMany(Protocol):
    """A participant that finishes many branches for little more than one."""

    def finish_many(self, due: Sequence[tuple[BranchId, Decision]]) -> Sequence[Finish | TxSagaError]:
        """Do for each what `finish` does, or say why it was refused; what is raised is a failure of the resource."""


@runtime_checkable
class Traced(Protocol):
    """A participant that can name the place where a person sees what became of a branch."""

    def traces(self, branch: BranchId, finish: Finish) -> str:
        """Return that place; nothing is looked at."""


class Identified(Protocol):
    """What knows which store it belongs to."""

    @property
    def identity(self) -> StoreId:
        """The store."""


class HomeStore(Protocol):
    """What a participant that is no database needs of the home database."""

    @property
    def registry(self) -> Identified:
        """Which store it is."""

    @property
    def reservations(self) -> Reservations:
        """What tries reserved."""

    @property
    def rights(self) -> frozenset[Right]:
        """What this process may do."""


class Enlistable(Protocol):
    """What a user registers as a participant that is no database."""

    def participant(self, name: str, store: HomeStore) -> Participant:
        """Return it as the participant of a name; what must be durable beside the decision is kept in the store."""
