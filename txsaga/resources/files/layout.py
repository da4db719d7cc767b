"""
Where a folder keeps what is staged in it.

    .txsaga/folder                                its uuid
    .txsaga/taken/<target's hash>                 a link that names the branch that reserved this target
    .txsaga/taken/<folder's hash>.<transaction>.<number>.<attempt>
                                                  the same for each folder that its targets need: many may share one
    .txsaga/<transaction>/<number>.<attempt>/     staged files of a branch, as 1, 2, …; its manifest is its yes
    .txsaga/<transaction>/<number>.<attempt>.done the manifest of what is in its place: the evidence

It must be on the same file system as its targets: files are put in place by renaming, never by copying.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import file_digest, sha256
from math import inf
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from txsaga.core.clock import wall_clock
from txsaga.errors import ConfigError
from txsaga.flows.branch import PREFIX, BranchId
from txsaga.resources.participant import ours

Stamp = tuple[int, int, int] | None
"""Inode, size and time of change of a file; None if there is none."""


class ManifestEntry(NamedTuple):
    """One staged file."""

    target: str
    staged: str
    size: int
    sha256: str
    number: int  # the staged file's inode: a target with it is the branch's own
    found: Stamp


def stamp(path: Path) -> Stamp:
    """Return what distinguishes a file from one that replaced it."""
    try:
        seen = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return seen.st_ino, seen.st_size, seen.st_mtime_ns


def entry(target: str, staged: Path, found: Stamp) -> ManifestEntry:
    """Sync a staged file and describe it."""
    with staged.open("rb") as file:
        os.fsync(file.fileno())
        digest = file_digest(file, "sha256").hexdigest()
        seen = os.fstat(file.fileno())
    return ManifestEntry(target, staged.name, seen.st_size, digest, seen.st_ino, found)


def written(entries: Sequence[ManifestEntry]) -> bytes:
    """Serialize a manifest."""
    return json.dumps({"files": [each._asdict() for each in entries]}, indent=1).encode()


def read(path: Path) -> list[ManifestEntry] | None:
    """Read a manifest; None if there is none."""
    try:
        text = path.read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return [
        ManifestEntry(**{**each, "found": each["found"] and tuple(each["found"])}) for each in json.loads(text)["files"]
    ]


OWN = ".txsaga"
MANIFEST = "manifest.json"
DONE = ".done"
SHOWN = 60
"""Characters of a too long name that its error shows."""


class Layout:
    """The paths in one folder."""

    def __init__(self, root: Path) -> None:
        self.root, self.own = root, root / OWN
        self.identity, self.taken = self.own / "folder", self.own / "taken"

    def staging(self, branch: BranchId) -> Path:
        """Return where a branch stages its files."""
        return self.own / branch.transaction / branch.qualifier

    def manifest(self, branch: BranchId) -> Path:
        """Return the path of the manifest, which is a branch's yes."""
        return self.staging(branch) / MANIFEST

    def done(self, branch: BranchId) -> Path:
        """Return the path of the marker of a committed branch."""
        return self.own / branch.transaction / f"{branch.qualifier}{DONE}"

    def reservation(self, target: str) -> Path:
        """Return the link that reserves a target for one branch."""
        return self.taken / sha256(target.encode()).hexdigest()

    def share(self, folder: str, branch: BranchId) -> Path:
        """Return the link that keeps a folder's name from becoming a file while a branch needs it."""
        return self.taken / f"{self.reservation(folder).name}.{branch.transaction}.{branch.qualifier}"

    def contested(self, targets: Sequence[str]) -> str | None:
        """Return a target that another branch uses as a folder, or that is below another's file."""
        kept = {link.name for link in self.taken.iterdir()}
        shared = {name.partition(".")[0] for name in kept if "." in name}
        for target in targets:
            over = any(self.reservation(folder).name in kept for folder in folders_of(target))
            if over or self.reservation(target).name in shared:
                return target
        return None

    def target(self, name: str) -> Path:
        """Return the path of a target."""
        return self.root / name

    def checked(self, path: object) -> str:
        """Return a target's name inside the folder; refuse one that leads out of it."""
        name = str(PurePosixPath(str(path)))
        parts = PurePosixPath(name).parts
        if not parts or name == "." or name.startswith("/") or ".." in parts or "\0" in name or parts[0] == OWN:
            raise ConfigError(f"{str(path)!r} is not a file in {self.root}; give a path inside it, not in {OWN}")
        if not _is_text(name):
            raise ConfigError(f"{name!r} is not valid Unicode; choose another path")
        if not self.target(name).parent.resolve().is_relative_to(self.root.resolve()):
            raise ConfigError(f"{name!r} leads out of folder {self.root} by a link; give a path inside it")
        return name

    def writable(self, path: object) -> str:
        """Return a target's name where a file can be put; refuse what could only fail after the decision."""
        name = self.checked(path)
        self._require_short(name)
        if (other := self.in_the_way(name)) is not None:
            raise ConfigError(f"{name!r} can't be written: {other!r} is not a folder; choose another path")
        return name

    def in_the_way(self, name: str) -> str | None:
        """Return the path of a non-folder where a target needs a folder."""
        for folder in folders_of(name):
            place = self.target(folder)
            if stamp(place) is not None and not place.is_dir():
                return folder
        return None

    def _require_short(self, name: str) -> None:
        """Refuse a name that is too long for this file system."""
        longest = max(len(os.fsencode(part)) for part in PurePosixPath(name).parts)
        whole = len(os.fsencode(self.target(name)))
        if longest > self._limit("PC_NAME_MAX") or whole >= self._limit("PC_PATH_MAX"):
            raise ConfigError(f"{name[:SHOWN] + '…'!r} is too long for this folder; choose a shorter path")

    def _limit(self, which: str) -> float:
        limit = os.pathconf(self.root, which)
        return limit if limit > 0 else inf

    def prepared(self, store: str) -> Iterator[BranchId]:
        """Yield every branch that voted yes for a store; '*' means any."""
        for staging in self._entries(store):
            if (staging / MANIFEST).exists():
                yield from ours(f"{PREFIX}:{staging.parts[-2]}:{staging.name}")

    def marked(self, store: str, seconds: float) -> Iterator[BranchId]:
        """Yield every branch of a store that was committed at least so many seconds ago."""
        for marker in self._entries(store):
            with suppress(FileNotFoundError):  # removed meanwhile
                if marker.suffix == DONE and marker.stat().st_mtime <= wall_clock().timestamp() - seconds:
                    yield from ours(f"{PREFIX}:{marker.parts[-2]}:{marker.name.removesuffix(DONE)}")

    def _entries(self, store: str) -> Iterator[Path]:
        """Yield the contents of the folders of a store's transactions, which may be removed meanwhile."""
        for transaction in sorted(self.own.glob(f"{store}-*")):
            with suppress(FileNotFoundError, NotADirectoryError):
                yield from sorted(transaction.iterdir())


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def folders_of(name: str) -> list[str]:
    """Return the folders that a target is in, outermost first."""
    return [str(folder) for folder in PurePosixPath(name).parents][-2::-1]
