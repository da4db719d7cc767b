"""
Sessions of a block within an event loop.

A participant with non-blocking sessions provides them; any other is called in threads, and all calls are started
before one is waited for. Otherwise one slow resource would stop everything else in the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

from txsaga.core.decision import Decision
from txsaga.core.fibers import current_fiber, run_blocking, sent_away
from txsaga.errors import TransactionError
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.resources.participant import Driven, EnlistedBranch, Looping, Opens, Participant


def looped(opens: Opens) -> Opens:
    """Return what opens a participant's sessions within a loop; `ConfigError` if it can't be used there."""
    return cast(Looping, opens).in_loop() if hasattr(opens, "in_loop") else _InThreads(opens)


def enlisted(participant: Participant, branch: BranchId, *, driver: bool) -> EnlistedBranch:
    """Open a session of a participant, within a loop or not."""
    opens: Opens = participant if current_fiber() is None else looped(participant)
    if not driver:
        return opens.enlist(branch)
    if not hasattr(opens, "enlist_driver"):
        raise TransactionError(
            f"resource {participant.name!r} has no connection of a driver to work with; leave driver=True out"
        )
    return cast(Driven, opens).enlist_driver(branch)


def away_with(opened: Callable[[], EnlistedBranch]) -> EnlistedBranch:
    """Open a session that blocks; within a loop in a thread, as all its calls."""
    return opened() if current_fiber() is None else _Away(run_blocking(opened))


class _InThreads:
    """A participant whose sessions block."""

    def __init__(self, opens: Opens) -> None:
        self._opens = opens

    def enlist(self, branch: BranchId) -> EnlistedBranch:
        return _Away(run_blocking(partial(self._opens.enlist, branch)))


class ForwardingSession:
    """A session that passes the work on to another."""

    def __init__(self, session: EnlistedBranch) -> None:
        self._session = session

    @property
    def handle(self) -> object:
        """What the user works with; if it blocks, through `asyncio.to_thread`."""
        return self._session.handle

    @property
    def number(self) -> int | None:
        """The server's number of the session."""
        return getattr(self._session, "number", None)


class _Away(ForwardingSession):
    """A session that blocks, called in threads."""

    def prepare(self) -> Callable[[], Vote]:
        return sent_away(lambda: self._session.prepare()())

    def finish(self, decision: Decision) -> Callable[[], Finish]:
        return sent_away(lambda: self._session.finish(decision)())

    def commit(self, transaction: str | None) -> Callable[[], None]:
        return sent_away(lambda: self._session.commit(transaction)())

    def leave(self) -> None:
        run_blocking(self._session.leave)
