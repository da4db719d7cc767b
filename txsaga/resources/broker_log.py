"""
The log of a broker's two-phase commits, for whoever settles by hand when everything else is gone.

One line before and one behind each step: the time, the step, the transaction's id and its branch. A line is on disk
before the step begins. It is never read by the program; if it can't be written, the step does not happen.
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
        """Do what was decided; what never voted is no matter of two phases."""
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
        """Commit in one phase: that is not logged."""
        return self._real.commit(transaction)

    def leave(self) -> None:
        """Give the session back."""
        self._real.leave()


class LoggedParticipant:
    """A participant whose branches are logged, in a file under its name."""

    def __init__(self, real: Participant, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._real, self._log = real, TxLog(folder / f"{real.name}.log")

    @property
    def name(self) -> str:
        """The name that it is registered under."""
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
        """Make a late commit in one phase impossible."""
        return self._real.fence(branch)

    def finish(self, branch: BranchId, decision: Decision) -> Finish:
        """Do what was decided."""
        before, after = STEPS[decision]
        self._log.write(before, branch)
        found = self._real.finish(branch, decision)
        self._log.write(after if found is Finish.DONE else f"found {found.name.lower()}", branch)
        return found

    def prepared(self, store: str) -> Sequence[BranchId]:
        """Return what is prepared."""
        return self._real.prepared(store)

    def forget(self, branch: BranchId) -> None:
        """Drop what is kept of a branch."""
        self._real.forget(branch)

    def sweep(self, store: str, ages: Ages, over: Over) -> int:
        """Drop what is old."""
        return self._real.sweep(store, ages, over)

    def close(self) -> None:
        """Give back what was opened."""
        self._real.close()
