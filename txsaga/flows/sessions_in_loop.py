"""
Sessions of a block within an event loop.

A participant with non-blocking sessions provides them; any other is called in threads, and all calls are started
before one is waited for. Otherwise one slow resource would stop everything else in the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from txsaga.core.decision import Decision
from txsaga.core.fibers import current_fiber, run_blocking, sent_away
from txsaga.errors import ConfigError, TransactionError
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.flows.journal import Journalled
from txsaga.resources.participant import Driven, EnlistedBranch, Journals, Looping, Opens, Participant


def looped(opens: Opens) -> Opens:
    """Return what opens a participant's sessions within a loop; `ConfigError` if it can't be used there."""
    return cast(Looping, opens).in_loop() if hasattr(opens, "in_loop") else _InThreads(opens)


def enlisted(participant: Participant, branch: BranchId, *, driver: bool) -> EnlistedBranch:
    """Open a session of a participant, within a loop or not."""
    opens: Opens = participant if current_fiber() is None else looped(participant)
    if not driver:
        return opens.enlist(branch)
    if not hasattr(opens, "enlist_driver"):
        raise TransactionError(f"resource {participant.name!r} has no driver connection; leave driver=True out")
    return cast(Driven, opens).enlist_driver(branch)


def execute(participant: Participant, session: EnlistedBranch, statements: Sequence[Journalled]) -> None:
    """Execute a journal in a session, in a thread if the session's calls run there."""
    if not isinstance(participant, Journals):
        raise ConfigError(f"{participant.name!r} takes no statements, so it has no journal")
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
