"""
A folder as a participant: files that are written together get their names together.

    enlist      the staging folder exists; its lock is the session
    the user writes files
    prepare     files synced, targets reserved and checked, then the manifest: the yes; if nothing was written, the
                branch is read only
    finish      everything in its place, or nothing left

Nothing is decided here. If the process dies before the manifest exists, recovery removes what is staged; after it,
recovery continues from the manifest. The folder must be on a local file system, or on one whose locks work across
machines. A copy of a folder carries the same uuid: do not register it in place of the folder.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import UUID, uuid4

from txsaga.core.arguments import check_kind
from txsaga.core.decision import Decision
from txsaga.errors import (
    CommunicationFailed,
    ConfigError,
    DuplicateBranch,
    ResourceManagerFailed,
    RetryLater,
    StoreUnavailable,
    TransientFailure,
)
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.resources.capabilities import CAPABILITIES, ResourceKind
from txsaga.resources.files import layout as manifest
from txsaga.resources.files.disk import make_folder, remove, remove_folder, sync_folder, write_whole
from txsaga.resources.files.layout import Layout, ManifestEntry, folders_of, written
from txsaga.resources.files.parquet import complete
from txsaga.resources.files.staging import FolderWork
from txsaga.resources.participant import Ages, HomeStore, Over
from txsaga.resources.two_phase import VotingBranch, VotingParticipant


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


TRIES = 10


class Folder:
    """A folder to register: `broker.enlist("reports", Folder("/srv/reports"))`."""

    def __init__(self, path: str | Path) -> None:
        check_kind(path, (str, Path), "the folder", "give its path")
        self.path = Path(path)

    def files(self, directory: str | Path) -> list[Path]:
        """Return the Parquet files of a directory in it: of each transaction all or none."""
        layout = Layout(self.path.absolute())
        return complete(layout, layout.checked(directory))

    def participant(self, name: str, store: HomeStore) -> FolderParticipant:
        """Return the folder as a participant."""
        return FolderParticipant(self.path, name=name)


class FolderParticipant(VotingParticipant):
    """One registered folder."""

    capabilities = CAPABILITIES[ResourceKind.FILES]

    def __init__(self, path: Path, *, name: str) -> None:
        self.name = name
        self._layout = Layout(path.absolute())
        self._database: UUID | None = None

    @property
    def database(self) -> UUID:
        """The uuid that this folder carries; a new folder gets one."""
        if self._database is None:
            self.probe()
            with _reaching(self._layout.root):
                self._database = _identity(self._layout.identity)
        return self._database

    def probe(self) -> None:
        """Raise `ConfigError` unless it is a folder that this process may write to."""
        root = self._layout.root
        if not root.is_dir():
            raise ConfigError(f"resource {self.name!r} is not a folder: {root}; create it, or mount it")
        if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
            raise ConfigError(f"resource {self.name!r} can't be written: {root}; give this user read and write rights")

    def enlist(self, branch: BranchId) -> FolderBranch:
        """Create the staging folder of a branch and lock it; `DuplicateBranch` if it exists."""
        _ = self.database
        with _reaching(self._layout.root):
            staging = self._staging(branch)
            session = os.open(staging, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(session, fcntl.LOCK_EX)
        return FolderBranch(self._layout, branch, session)

    def finish(self, branch: BranchId, decision: Decision) -> Finish:
        """Carry out the decision, from any process, under the lock of the staging folder."""
        with self._locked(branch):
            return ended(self._layout, branch, decision)

    def prepared(self, store: str) -> Sequence[BranchId]:
        """Return every branch that voted yes for a store."""
        with _reaching(self._layout.root):
            self._require_there()
            return list(self._layout.prepared(store))

    def forget(self, branch: BranchId) -> None:
        """Remove the marker of a branch, and the files that could not be placed."""
        with self._locked(branch), _reaching(self._layout.root):
            remove(self._layout.done(branch))
            remove_folder(self._layout.staging(branch))
            with suppress(OSError):
                self._layout.staging(branch).parent.rmdir()

    def traces(self, branch: BranchId, finish: Finish) -> str:
        """Return where the files are that could not be placed, or the marker of a committed branch."""
        return str(self._layout.done(branch) if finish is Finish.COMMITTED else self._layout.staging(branch))

    def sweep(self, store: str, ages: Ages, over: Over) -> int:
        """Remove old markers of finished branches; a folder has no barriers."""
        with _reaching(self._layout.root):
            old = list(self._layout.marked(store, ages.committed.total_seconds()))
        wanted = over(old) if old else ()
        for branch in wanted:
            self.forget(branch)
        return len(wanted)

    def _staging(self, branch: BranchId) -> Path:
        staging = self._layout.staging(branch)
        for _ in range(TRIES):
            make_folder(staging.parent)
            try:
                staging.mkdir()
            except FileExistsError:
                raise DuplicateBranch(f"branch {branch.gid} is in {self._layout.root} already") from None
            except FileNotFoundError:  # removing an earlier attempt also removed its parent
                continue
            return staging
        raise TransientFailure(f"branch {branch.gid} can't be created in {self._layout.root}; try again")

    @contextmanager
    def _locked(self, branch: BranchId) -> Iterator[None]:
        with _reaching(self._layout.root):
            self._require_there()
            session = None
            with suppress(FileNotFoundError):
                session = os.open(self._layout.staging(branch), os.O_RDONLY | os.O_DIRECTORY)
        try:
            if session is not None:
                fcntl.flock(session, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise RetryLater(f"branch {branch.gid} is held by the process that opened it") from None
        finally:
            if session is not None:
                os.close(session)

    def _require_there(self) -> None:
        """Refuse a folder without its identity: an empty mount point would look as if everything was rolled back."""
        if not self._layout.identity.exists():
            raise StoreUnavailable(f"resource {self.name!r} is unavailable: {self._layout.root} has no data of txsaga")


@contextmanager
def _reaching(root: Path) -> Iterator[None]:
    try:
        yield
    except BlockingIOError:
        raise
    except OSError as error:
        raise StoreUnavailable(f"folder {root} can't be reached: {error}") from error


def _identity(path: Path) -> UUID:
    """Read the uuid of a folder; the first process gives it one."""
    if not path.exists():
        make_folder(path.parent)
        draft = path.with_name(f"{path.name}.{uuid4()}")
        with draft.open("xb") as file:
            file.write(f"{uuid4()}\n".encode())
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(draft, path)
        draft.unlink()
        sync_folder(path.parent)
    return UUID(path.read_text().strip())
