"""
A participant: one resource that votes on a transaction and then carries out the decision.

Sending a request to a resource and waiting for its answer are two calls, so that one thread can keep many resources
busy at once. Errors: `VotedNo` and the other `XaError`s; `StoreUnavailable` and `ResourceManagerFailed` if the resource
can't be reached. Meanwhile the caller holds no session of the home database.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable
from uuid import UUID

from txsaga.core.decision import Decision
from txsaga.errors import TxSagaError, UnknownTransaction
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.flows.journal import Journalled
from txsaga.resources.capabilities import Capabilities
from txsaga.store.right import Right

if TYPE_CHECKING:
    from txsaga.core.identity import StoreId
    from txsaga.resources.reservations_store import Reservations

Over = Callable[[Sequence[BranchId]], Collection[BranchId]]
"""Returns those of the branches whose decision has been acknowledged."""


def ours(gid: str) -> Sequence[BranchId]:
    """Return the branch that a resource has under this name; nothing if the name is not one of ours."""
    try:
        return [BranchId.parse(gid)]
    except UnknownTransaction:
        return []


class Ages(NamedTuple):
    """How long a resource keeps the records of finished branches."""

    committed: timedelta
    barriers: timedelta  # longer than any local transaction can last: a late one must still find its barrier


class EnlistedBranch(Protocol):
    """The work of one branch, open in this process on a session of its own."""

    @property
    def handle(self) -> object:
        """What the user works with: a SQLAlchemy connection, a folder, a client."""

    def prepare(self) -> Callable[[], Vote]:
        """Ask for the vote; the returned function waits for it.

        A yes survives a crash of this process and of the resource. Any error means no, or unknown, and the branch is
        rolled back. A resource that votes yes but holds nothing is detected here.
        """

    def finish(self, decision: Decision) -> Callable[[], Finish]:
        """Carry out the decision, on the session that prepared; the returned function waits for it.

        ROLLBACK is allowed at any moment. After an error recovery finishes the branch.
        """

    def commit(self, transaction: str | None) -> Callable[[], None]:
        """Commit in one phase, with the branch's evidence; the returned function waits for it.

        If a transaction is given, its own evidence is committed as well, and that commit is the decision: other
        processes find it, or write the barrier first (R12). `DecidedOtherwise` if a barrier exists; `OutcomeUnknown` if
        the outcome can't be determined.
        """

    def leave(self) -> None:
        """Give the session back. Prepared work stays prepared, all other work is rolled back."""


class Opens(Protocol):
    """Opens the sessions of branches."""

    def enlist(self, branch: BranchId) -> EnlistedBranch:
        """Open a session with a transaction for a branch. A lost session is never reopened for the same branch."""


class Participant(Opens, Protocol):
    """One registered resource."""

    @property
    def name(self) -> str:
        """The name it is registered under."""

    @property
    def database(self) -> UUID:
        """The uuid of this resource: a name that later leads to another resource is detected."""

    @property
    def capabilities(self) -> Capabilities:
        """What this kind of resource can do."""

    def probe(self) -> None:
        """Raise `ConfigError`, with the remedy, unless it can vote as its kind does; write nothing.

        `TransactionsRejected` if it could vote, but begins no transactions now.
        """

    def finish(self, branch: BranchId, decision: Decision) -> Finish:
        """Carry out the decision, from any process, as often as it is asked.

        A branch that is gone is judged by the evidence of its own commit: with a row it was committed, without one it
        was rolled back, by whichever session. `RetryLater` while the session that prepared it still holds it.
        """

    def fence(self, branch: BranchId) -> Finish:
        """Prevent a one-phase commit that is under way or late: COMMITTED if it came first, else DONE.

        `RetryLater` while a commit is under way and its outcome is unknown.
        """

    def prepared(self, store: str) -> Sequence[BranchId]:
        """Return every prepared branch that the store with this uuid coordinates; leave others' branches alone."""

    def forget(self, branch: BranchId) -> None:
        """Drop everything that is kept of a finished branch."""

    def sweep(self, store: str, ages: Ages, over: Over) -> int:
        """Drop old records of a store's finished branches, in batches; return how many.

        Only branches that `over` returns are dropped: no process asks about them any more. Does nothing if nothing is
        kept, or if it expires by itself.
        """

    def close(self) -> None:
        """Release what was opened here."""


class Driven(Protocol):
    """A participant that can hand out its driver's own connection."""

    def enlist_driver(self, branch: BranchId) -> EnlistedBranch:
        """Do what `enlist` does, with the driver's own connection as the handle."""


class Looping(Protocol):
    """A participant whose sessions can wait in an event loop without blocking it; all others run in threads."""

    def in_loop(self) -> Opens:
        """Return the opener of sessions that suspend only their task; `ConfigError` if there is none."""


class LockWait(NamedTuple):
    """One session that waits for another, or for held work."""

    waiter: int
    holder: int | str

    @property
    def sessions(self) -> Sequence[int]:
        """The sessions that take part, by the server's numbers."""
        return [each for each in self if isinstance(each, int)]

    @property
    def held(self) -> Sequence[str]:
        """The held work that takes part, by the server's names."""
        return [each for each in self if isinstance(each, str)]


class LockView(Protocol):
    """A view of the lock waits in one database, through a session of its own."""

    def blocked(self, sessions: Sequence[int], held: Sequence[str]) -> LockWait | None:
        """Return one of these sessions that waits for another one or for held work, directly or through others.

        Held work is given by the name of its branch, or by its `mark`. None without the right to look.
        """

    def interrupt(self, wait: LockWait) -> bool:
        """Cancel the waiting statement; False if it no longer waits, or this is forbidden."""

    def close(self) -> None:
        """Close the view's own session."""


@runtime_checkable
class ShowsLocks(Protocol):
    """A participant that shows which session waits for which; its sessions have a `number`, while they are open."""

    def look(self) -> LockView:
        """Open a view of the lock waits."""

    def is_cancelled(self, error: BaseException) -> bool:
        """Return whether an error is that of a cancelled statement."""

    def mark(self, session: EnlistedBranch) -> str:
        """Return the server's name for the work of a session; nothing if it knows the branch by its own name."""


@runtime_checkable
class FinishesMany(Protocol):
    """A participant that finishes many branches for little more than the cost of one."""

    def finish_many(self, due: Sequence[tuple[BranchId, Decision]]) -> Sequence[Finish | TxSagaError]:
        """Do for each what `finish` does, or return why it was refused; a raised error is a failure of the resource."""


@runtime_checkable
class Traced(Protocol):
    """A participant that can name the place where an operator sees the outcome of a branch."""

    def traces(self, branch: BranchId, finish: Finish) -> str:
        """Return that place, without checking it."""


@runtime_checkable
class Journals(Protocol):
    """A participant that can execute journalled statements."""

    def do(self, session: EnlistedBranch, statements: Sequence[Journalled]) -> None:
        """Execute statements in an open branch; `RowsDiffer`, or another no, if one can't be done as recorded."""


class Identified(Protocol):
    """Something that knows which store it belongs to."""

    @property
    def identity(self) -> StoreId:
        """The store."""


class HomeStore(Protocol):
    """The part of the home database that a participant other than a database needs."""

    @property
    def registry(self) -> Identified:
        """The registry, which knows the store's identity."""

    @property
    def reservations(self) -> Reservations:
        """The reservations made by tries."""

    @property
    def rights(self) -> frozenset[Right]:
        """The rights of this process."""


class Enlistable(Protocol):
    """A participant other than a database, as a user registers it."""

    def participant(self, name: str, store: HomeStore) -> Participant:
        """Return the participant for a name; state that must be as durable as the decision is kept in the store."""
