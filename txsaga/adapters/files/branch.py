"""
One branch in a folder, from its staging folder to the end of the second phase.

    enlist      the staging folder is there; its lock is the session
    the user writes files
    prepare     files synced, targets reserved and looked at, then the manifest: the yes; where nothing was written it
                leaves
    finish      everything in its place, or nothing left

It must not decide anything. If this process dies before the manifest is there, recovery removes what is staged; behind
it, whoever recovers goes on from the manifest.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from txsaga.adapters.files import placing
from txsaga.adapters.files.disk import sync_folder, write_whole
from txsaga.adapters.files.layout import Layout
from txsaga.adapters.files.manifest import written
from txsaga.adapters.files.staging import FolderWork
from txsaga.engine.sent import sent
from txsaga.errors import xa
from txsaga.model.branch import BranchId, Finish, Vote
from txsaga.model.decision import Decision


class FolderBranch:
    """The work of one branch."""

    def __init__(self, layout: Layout, branch: BranchId, session: int) -> None:
        self._layout, self._branch, self._session = layout, branch, session
        self.handle = FolderWork(layout, branch, session)
        self._vote: Callable[[], Vote] | None = None
        self._prepared = False

    def prepare(self) -> Callable[[], Vote]:
        """Ask for the vote; a branch that staged nothing leaves."""
        if self._vote is not None:
            raise xa.ProtocolError(f"branch {self._branch.gid} was asked for its vote before")
        self._vote = sent(self._voted)
        return self._vote

    def finish(self, decision: Decision) -> Callable[[], Finish]:
        """Do what was decided; a branch that has not voted yes can only be rolled back."""
        if self._vote is not None:
            with suppress(xa.XaError):
                self._vote()
        if decision is Decision.COMMIT and not self._prepared:
            raise xa.ProtocolError(f"branch {self._branch.gid} holds no yes that could be committed")
        return sent(lambda: self._finished(decision))

    def commit(self, transaction: str | None) -> Callable[[], None]:
        """Refuse: many files never change in one step, so a folder decides for nobody."""
        raise xa.ProtocolError(
            f"branch {self._branch.gid} of {transaction} is in a folder, which can't decide; it votes"
        )

    def leave(self) -> None:
        """Give the session back; what was not prepared is removed."""
        if not self._prepared:
            self.handle.close()
            with suppress(OSError):  # recovery removes it once the transaction is decided
                placing.roll_back(self._layout, self._branch)
        os.close(self._session)

    def _voted(self) -> Vote:
        try:
            entries = self.handle.entries()
            if not entries:
                placing.roll_back(self._layout, self._branch)
                return Vote.READ_ONLY
            placing.reserve(self._layout, self._branch, [each.target for each in entries])
            self.handle.require_places()
            staging = self._layout.staging(self._branch)
            for folder in (staging, staging.parent, self._layout.own):
                sync_folder(folder)
            write_whole(self._layout.manifest(self._branch), written(entries))
        except OSError as error:
            raise xa.CommunicationFailed(f"branch {self._branch.gid} can't be prepared: {error}") from error
        self._prepared = True
        return Vote.PREPARED

    def _finished(self, decision: Decision) -> Finish:
        self.handle.close()
        return ended(self._layout, self._branch, decision)


def ended(layout: Layout, branch: BranchId, decision: Decision) -> Finish:
    """Do what was decided; a folder that can't be reached keeps what it holds."""
    end = placing.commit if decision is Decision.COMMIT else placing.roll_back
    try:
        return end(layout, branch)
    except OSError as error:
        raise xa.ResourceManagerFailed(f"branch {branch.gid} can't be finished in {layout.root}: {error}") from error
