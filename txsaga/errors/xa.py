"""
The answers of a resource manager in two-phase commit, one class per code of the XA specification.

    XaError
    ├── VotedNo              the resource rolled its branch back, or will: the transaction rolls back
    │   ├── RolledBack 100, CommunicationFailed 101, Deadlocked 102, IntegrityViolated 103,
    │   └── OtherReason 104, ProtocolBroken 105, TimedOut 106, TransientFailure 107 (retryable)
    ├── Heuristic            somebody decided a branch over the coordinator's head: kept until it is forgotten
    │   └── HeuristicMixed 5, HeuristicRollback 6, HeuristicCommit 7, HeuristicHazard 8
    ├── ReadOnly 3, RetryLater 4 (retryable), NoMigration 9
    └── AsyncPending -2, ResourceManagerError -3, UnknownBranch -4, InvalidArguments -5, ProtocolError -6,
        ResourceManagerFailed -7 (retryable), DuplicateBranch -8, OutsideTransaction -9

A code says by itself what follows: whether the same may be tried again, and what state the branch is left in. If one
of these is caught and dropped, nothing is lost: what a branch voted, and what was decided, is durable elsewhere.
"""

from __future__ import annotations

from typing import ClassVar

from txsaga.errors import TransactionError


class XaError(TransactionError):
    """A resource manager answered something else than yes."""

    number: ClassVar[int]


class VotedNo(XaError):
    """The branch is rolled back, or can only be; so is its transaction."""

    number = 100


class RolledBack(VotedNo):
    """Rolled back for a reason of the resource's own (XA_RBROLLBACK)."""

    number = 100


class CommunicationFailed(VotedNo):
    """A connection inside the resource was lost (XA_RBCOMMFAIL)."""

    number = 101


class Deadlocked(VotedNo):
    """A deadlock was found (XA_RBDEADLOCK)."""

    number = 102


class IntegrityViolated(VotedNo):
    """A constraint that is checked at the end does not hold (XA_RBINTEGRITY)."""

    number = 103


class OtherReason(VotedNo):
    """A reason that has no code of its own (XA_RBOTHER)."""

    number = 104


class ProtocolBroken(VotedNo):
    """The resource found calls out of order (XA_RBPROTO)."""

    number = 105


class TimedOut(VotedNo):
    """The branch took too long (XA_RBTIMEOUT)."""

    number = 106


class TransientFailure(VotedNo):
    """The branch may be tried again from its beginning (XA_RBTRANSIENT)."""

    number = 107
    retryable = True


class Heuristic(XaError):
    """Somebody decided a branch over the coordinator's head."""

    number = 8


class HeuristicMixed(Heuristic):
    """Part of the branch is committed, part rolled back (XA_HEURMIX)."""

    number = 5


class HeuristicRollback(Heuristic):
    """The branch was rolled back although its transaction commits (XA_HEURRB)."""

    number = 6


class HeuristicCommit(Heuristic):
    """The branch was committed although its transaction rolls back (XA_HEURCOM)."""

    number = 7


class HeuristicHazard(Heuristic):
    """What became of the branch can't be known (XA_HEURHAZ)."""

    number = 8


class ReadOnly(XaError):
    """The branch changed nothing: it is done, without a second phase (XA_RDONLY)."""

    number = 3


class RetryLater(XaError):
    """The resource can't do it now and holds the branch (XA_RETRY)."""

    number = 4
    retryable = True


class NoMigration(XaError):
    """The branch must be finished where it was begun (XA_NOMIGRATE)."""

    number = 9


class AsyncPending(XaError):
    """An asynchronous call is under way (XAER_ASYNC)."""

    number = -2


class ResourceManagerError(XaError):
    """The resource failed and the branch with it (XAER_RMERR)."""

    number = -3


class UnknownBranch(XaError):
    """The resource knows no such branch (XAER_NOTA)."""

    number = -4


class InvalidArguments(XaError):
    """The call can't be read (XAER_INVAL)."""

    number = -5


class ProtocolError(XaError):
    """The call is out of order (XAER_PROTO)."""

    number = -6


class ResourceManagerFailed(XaError):
    """The resource can't be reached; what it holds stays as it is (XAER_RMFAIL)."""

    number = -7
    retryable = True


class DuplicateBranch(XaError):
    """The branch exists already (XAER_DUPID)."""

    number = -8


class OutsideTransaction(XaError):
    """The resource is in a transaction of somebody else (XAER_OUTSIDE)."""

    number = -9


def all_codes() -> dict[int, type[XaError]]:
    """Return every code with its class; what is more special than a code is not listed."""
    found: dict[int, type[XaError]] = {}
    waiting = [XaError]
    while waiting:
        kind = waiting.pop(0)
        below = [each for each in kind.__subclasses__() if each.__module__ == __name__]
        waiting += below
        if not below:
            found[kind.number] = kind
    return found
