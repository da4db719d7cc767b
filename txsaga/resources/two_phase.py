"""
What the participants share that vote in a thread: folders, calls that reserve, other brokers.

Any process can carry out their second phase, and none of them commits in one phase.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

from txsaga.core.decision import Decision
from txsaga.core.failure import complete
from txsaga.errors import ProtocolError
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.resources.participant import Ages, Over

Answer = TypeVar("Answer")


def started(call: Callable[[], Answer]) -> Future[Answer]:
    """Start a call in a thread of its own, which the program does not wait for when it exits."""
    future: Future[Answer] = Future()
    Thread(target=complete, args=(future, call), name="txsaga-branch", daemon=True).start()
    return future


class VotingBranch(ABC):
    """The work of one branch that votes, and can't decide."""

    def __init__(self, branch: BranchId) -> None:
        self._branch = branch
        self._asked: Future[Vote] | None = None
        self._prepared = False

    @abstractmethod
    def _close(self) -> None:
        """Accept no more work."""

    @abstractmethod
    def _vote(self) -> Vote:
        """Vote, in a thread; set `_prepared` for a yes."""

    @abstractmethod
    def _end(self, decision: Decision) -> Finish:
        """Carry out the decision, in a thread."""

    def prepare(self) -> Callable[[], Vote]:
        """Ask for the vote; a branch that did nothing is read only."""
        if self._asked is not None:
            raise ProtocolError(f"branch {self._branch.gid} was asked for its vote before")
        self._close()
        self._asked = started(self._vote)
        return self._asked.result

    def finish(self, decision: Decision) -> Callable[[], Finish]:
        """Carry out the decision; a branch that has not voted yes can only be rolled back."""
        self._close()
        if self._asked is not None:
            self._asked.exception()  # whatever the vote is, it must be over
        if decision is Decision.COMMIT and not self._prepared:
            raise ProtocolError(f"branch {self._branch.gid} did not vote yes, so it can't be committed")
        return started(lambda: self._end(decision)).result

    def commit(self, transaction: str | None) -> Callable[[], None]:
        """Refuse: it holds no evidence of a transaction."""
        raise ProtocolError(f"branch {self._branch.gid} of {transaction} can't decide; it votes")


class VotingParticipant(ABC):
    """A participant whose branches vote, and keep nothing that has to be swept."""

    @abstractmethod
    def finish(self, branch: BranchId, decision: Decision) -> Finish:
        """Carry out the decision, from any process."""

    def fence(self, branch: BranchId) -> Finish:
        """Roll back: nothing commits in one phase."""
        return self.finish(branch, Decision.ROLLBACK)

    def sweep(self, store: str, ages: Ages, over: Over) -> int:
        """Do nothing: what is kept of a finished branch expires by itself."""
        return 0

    def close(self) -> None:  # noqa: B027  # most open nothing
        """Do nothing: nothing was opened here."""
