"""
The two ends of a branch in a folder, each of them done again from any line of it.

    COMMIT     every staged file is named as its target, folders are synced, the manifest becomes the marker
    ROLLBACK   the manifest goes first, with it the yes; then the rest

What holds a target for a branch goes when the branch is over, and before its staging folder: earlier another could
replace what was placed, and the heir of this one would find it nowhere; later nobody would give it back. The caller
holds the lock of the staging folder.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from txsaga.adapters.files import manifest
from txsaga.adapters.files.disk import make_folder, remove, remove_folder, sync_folder
from txsaga.adapters.files.layout import Layout, folders_of
from txsaga.adapters.files.manifest import Entry
from txsaga.errors import xa
from txsaga.model.branch import BranchId, Finish


def reserve(layout: Layout, branch: BranchId, targets: Sequence[str]) -> None:
    """
    Keep targets for a branch, and their folders: two that voted yes would take each other's places.

    Who keeps first and then looks is seen by whoever does the same: of two, one at the least says no.
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


def _waits(branch: BranchId, target: str) -> xa.TransientFailure:
    return xa.TransientFailure(
        f"branch {branch.gid} votes no: {target!r} waits for another transaction's end; try again"
    )


def free(layout: Layout, branch: BranchId) -> None:
    """Give back every target that a branch kept."""
    with suppress(FileNotFoundError):
        for link in layout.taken.iterdir():
            with suppress(FileNotFoundError):
                if str(link.readlink()) == branch.gid:
                    link.unlink()


def commit(layout: Layout, branch: BranchId) -> Finish:
    """Put everything in its place; what somebody placed there since the vote is left alone."""
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
        return Finish.HAZARD  # the manifest and the files that found no place are kept
    layout.manifest(branch).replace(layout.done(branch))
    sync_folder(layout.staging(branch))
    sync_folder(layout.done(branch).parent)
    _leave(layout, branch)
    return Finish.DONE


def roll_back(layout: Layout, branch: BranchId) -> Finish:
    """Remove everything; a commit that had begun is brought to its end, and told."""
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


def _place(layout: Layout, branch: BranchId, each: Entry) -> bool:
    staged, target = _staged(layout, branch, each), layout.target(each.target)
    there = manifest.stamp(target)
    if there is not None and there[0] == each.number:
        staged.unlink(missing_ok=True)  # our own, named and perhaps not taken out of the staging folder
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


def _is_begun(layout: Layout, branch: BranchId, each: Entry) -> bool:
    there = manifest.stamp(layout.target(each.target))
    return not _staged(layout, branch, each).exists() or (there is not None and there[0] == each.number)


def _staged(layout: Layout, branch: BranchId, each: Entry) -> Path:
    return layout.staging(branch) / each.staged
