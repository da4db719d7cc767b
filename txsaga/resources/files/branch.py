"""
One branch in a folder, from its staging folder to the end of the second phase.

    enlist      the staging folder exists; its lock is the session
    the user writes files
    prepare     files synced, targets reserved and checked, then the manifest: the yes; if nothing was written, the
                branch is read only
    finish      everything in its place, or nothing left

This module must not decide anything. If the process dies before the manifest exists, recovery removes what is staged;
after it, recovery continues from the manifest.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from txsaga.core.decision import Decision
from txsaga.errors import CommunicationFailed, ResourceManagerFailed, TransientFailure
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.resources.files import layout as manifest
from txsaga.resources.files.disk import make_folder, remove, remove_folder, sync_folder, write_whole
from txsaga.resources.files.layout import Layout, ManifestEntry, folders_of, written
from txsaga.resources.files.staging import FolderWork
from txsaga.resources.two_phase import VotingBranch


def reserve(layout: Layout, branch: BranchId, targets: Sequence[str]) -> None:
    """
    Reserve targets for a branch, and their folders: two yes votes could claim the same place.

    Each branch first reserves and then checks, so of two competing branches at least one votes no.
    """
    make_folder(layout.taken)
    for target in targets:
        try:
            layout.reservation(target).symlink_to(branch.gid)
        except FileExistsError:
            raise _waits(branch, target) from None
    for folder in {folder for target in targets for folder in folders_of(target)}:
        layout.share(folder, branch).symlink_to(branch.gid)
    if (contested := layout.contested(targets)) is not None:
        raise _waits(branch, contested)
    sync_folder(layout.taken)


def _waits(branch: BranchId, target: str) -> TransientFailure:
    return TransientFailure(f"branch {branch.gid} votes no: {target!r} waits for another transaction's end; try again")


def free(layout: Layout, branch: BranchId) -> None:
    """Release every target that a branch reserved."""
    with suppress(FileNotFoundError):
        for link in layout.taken.iterdir():
            with suppress(FileNotFoundError):
                if str(link.readlink()) == branch.gid:
                    link.unlink()


def commit(layout: Layout, branch: BranchId) -> Finish:
    """Put everything in its place; leave alone what others placed there since the vote."""
    entries = manifest.read(layout.manifest(branch))
    if entries is None:
        _leave(layout, branch)
        return Finish.DONE if layout.done(branch).exists() else Finish.ROLLED_BACK
    placed = [_place(layout, branch, each) for each in entries]
    for folder in {layout.target(each.target).parent for each in entries}:
        if folder.is_dir():
            sync_folder(folder)
    if not all(placed):
        free(layout, branch)
        return Finish.HAZARD  # the manifest and the files that could not be placed are kept
    layout.manifest(branch).replace(layout.done(branch))
    sync_folder(layout.staging(branch))
    sync_folder(layout.done(branch).parent)
    _leave(layout, branch)
    return Finish.DONE


def roll_back(layout: Layout, branch: BranchId) -> Finish:
    """Remove everything; a commit that had begun is completed, and reported."""
    if layout.done(branch).exists():
        _leave(layout, branch)
        return Finish.COMMITTED
    entries = manifest.read(layout.manifest(branch)) or []
    if any(_is_begun(layout, branch, each) for each in entries):
        return Finish.COMMITTED if commit(layout, branch) is Finish.DONE else Finish.HAZARD
    remove(layout.manifest(branch))
    _leave(layout, branch)
    return Finish.DONE


def _leave(layout: Layout, branch: BranchId) -> None:
    free(layout, branch)
    remove_folder(layout.staging(branch))


def _place(layout: Layout, branch: BranchId, each: ManifestEntry) -> bool:
    staged, target = _staged(layout, branch, each), layout.target(each.target)
    there = manifest.stamp(target)
    if there is not None and there[0] == each.number:
        staged.unlink(missing_ok=True)  # our own, linked but perhaps still in the staging folder
        return True
    if there != each.found or not staged.exists():
        return False
    try:
        make_folder(target.parent)
        if each.found is None:
            os.link(staged, target)
            staged.unlink()
        else:
            staged.replace(target)
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        return False
    return True


def _is_begun(layout: Layout, branch: BranchId, each: ManifestEntry) -> bool:
    there = manifest.stamp(layout.target(each.target))
    return not _staged(layout, branch, each).exists() or (there is not None and there[0] == each.number)


def _staged(layout: Layout, branch: BranchId, each: ManifestEntry) -> Path:
    return layout.staging(branch) / each.staged


class FolderBranch(VotingBranch):
    """The work of one branch."""

    def __init__(self, layout: Layout, branch: BranchId, session: int) -> None:
        super().__init__(branch)
        self._layout, self._session = layout, session
        self.handle = FolderWork(layout, branch, session)

    def leave(self) -> None:
        """Give the session back; remove what was not prepared."""
        if not self._prepared:
            self.handle.close()
            with suppress(OSError):  # recovery removes it once the transaction is decided
                roll_back(self._layout, self._branch)
        os.close(self._session)

    def _close(self) -> None:
        self.handle.closed = True

    def _vote(self) -> Vote:
        try:
            entries = self.handle.entries()
            if not entries:
                roll_back(self._layout, self._branch)
                return Vote.READ_ONLY
            reserve(self._layout, self._branch, [each.target for each in entries])
            self.handle.require_places()
            staging = self._layout.staging(self._branch)
            for folder in (staging, staging.parent, self._layout.own):
                sync_folder(folder)
            write_whole(self._layout.manifest(self._branch), written(entries))
        except OSError as error:
            raise CommunicationFailed(f"branch {self._branch.gid} can't be prepared: {error}") from error
        self._prepared = True
        return Vote.PREPARED

    def _end(self, decision: Decision) -> Finish:
        self.handle.close()
        return ended(self._layout, self._branch, decision)


def ended(layout: Layout, branch: BranchId, decision: Decision) -> Finish:
    """Carry out the decision; a folder that can't be reached keeps what it holds."""
    end = commit if decision is Decision.COMMIT else roll_back
    try:
        return end(layout, branch)
    except OSError as error:
        raise ResourceManagerFailed(f"branch {branch.gid} can't be finished in {layout.root}: {error}") from error
