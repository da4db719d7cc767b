"""
The log of a broker's two-phase commits, for an operator who settles by hand when everything else is lost.

One line before and one after each step: the time, the step, the transaction's id and its branch. A line is on disk
before the step begins. The program never reads it; if it can't be written, the step does not happen.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from uuid import UUID

from txsaga.core.clock import wall_clock
from txsaga.core.decision import Decision
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.resources.capabilities import Capabilities
from txsaga.resources.participant import Ages, EnlistedBranch, Over, Participant

STEPS = {Decision.COMMIT: ("committing", "committed"), Decision.ROLLBACK: ("rolling back", "rolled back")}


class TxLog:
    """One broker's file."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, Lock()

    def write(self, step: str, branch: BranchId) -> None:
        """Append a line; it is on disk when this returns."""
        line = f"{wall_clock().isoformat()} {step} {branch.transaction} {branch.qualifier}\n"
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


class LoggedEnlisted:
    """A branch whose steps are logged."""

    def __init__(self, real: EnlistedBranch, branch: BranchId, log: TxLog) -> None:
        self._real, self._branch, self._log = real, branch, log
        self._voted = False

    @property
    def handle(self) -> object:
        """What the user works with."""
        return self._real.handle

    def prepare(self) -> Callable[[], Vote]:
        """Ask for the vote."""
        self._log.write("preparing", self._branch)
        wait, self._voted = self._real.prepare(), True

        def voted() -> Vote:
            vote = wait()
            self._log.write("prepared", self._branch)
            return vote

        return voted

    def finish(self, decision: Decision) -> Callable[[], Finish]:
        """Carry out the decision; for a branch that never voted there is nothing to log."""
        if not self._voted:
            return self._real.finish(decision)
        before, after = STEPS[decision]
        self._log.write(before, self._branch)
        wait = self._real.finish(decision)

        def finished() -> Finish:
            found = wait()
            self._log.write(after if found is Finish.DONE else f"found {found.name.lower()}", self._branch)
            return found

        return finished

    def commit(self, transaction: str | None) -> Callable[[], None]:
        """Commit in one phase, which is not logged."""
        return self._real.commit(transaction)

    def leave(self) -> None:
        """Give the session back."""
        self._real.leave()


class LoggedParticipant:
    """A participant whose branches are logged, in a file named after it."""

    def __init__(self, real: Participant, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._real, self._log = real, TxLog(folder / f"{real.name}.log")

    @property
    def name(self) -> str:
        """The name it is registered under."""
        return self._real.name

    @property
    def database(self) -> UUID:
        """The uuid of the resource."""
        return self._real.database

    @property
    def capabilities(self) -> Capabilities:
        """What its kind can do."""
        return self._real.capabilities

    def probe(self) -> None:
        """Raise unless it can vote."""
        self._real.probe()

    def enlist(self, branch: BranchId) -> EnlistedBranch:
        """Open a branch."""
        return LoggedEnlisted(self._real.enlist(branch), branch, self._log)

    def fence(self, branch: BranchId) -> Finish:
        """Prevent a late commit in one phase."""
        return self._real.fence(branch)

    def finish(self, branch: BranchId, decision: Decision) -> Finish:
        """Carry out the decision."""
        before, after = STEPS[decision]
        self._log.write(before, branch)
        found = self._real.finish(branch, decision)
        self._log.write(after if found is Finish.DONE else f"found {found.name.lower()}", branch)
        return found

    def prepared(self, store: str) -> Sequence[BranchId]:
        """Return the prepared branches."""
        return self._real.prepared(store)

    def forget(self, branch: BranchId) -> None:
        """Drop what is kept of a branch."""
        self._real.forget(branch)

    def sweep(self, store: str, ages: Ages, over: Over) -> int:
        """Drop old records."""
        return self._real.sweep(store, ages, over)

    def close(self) -> None:
        """Release what was opened."""
        self._real.close()
