"""
A folder as a participant: files that are written together get their names together.

It must be on a local file system, or on one whose locks work across machines. A copy of a folder carries the same uuid:
do not register it in place of the folder.
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
from txsaga.errors import ConfigError, DuplicateBranch, RetryLater, StoreUnavailable, TransientFailure
from txsaga.flows.branch import BranchId, Finish
from txsaga.resources.capabilities import CAPABILITIES, ResourceKind
from txsaga.resources.files.branch import FolderBranch, ended
from txsaga.resources.files.disk import make_folder, remove, remove_folder, sync_folder
from txsaga.resources.files.layout import Layout
from txsaga.resources.files.parquet import complete
from txsaga.resources.participant import Ages, HomeStore, Over
from txsaga.resources.two_phase import VotingParticipant

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
