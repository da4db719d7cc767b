"""
What a user works with in a folder: files that are written outside their places.

Modes are those of `open`: "xb" for a file that must be new, "wb" for one that may replace another. Rows are appended to
a directory as new files. No file has its own name before the decision. The vote closes files that are still open. If
the process dies, what is staged is removed with its branch.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from shutil import rmtree
from stat import S_IMODE, S_ISREG
from typing import BinaryIO, NamedTuple

from txsaga.core.arguments import check_kind
from txsaga.errors import CommunicationFailed, ConfigError, IntegrityViolated, TableError, TransactionClosed
from txsaga.flows.branch import BranchId
from txsaga.resources.files import parquet
from txsaga.resources.files.layout import Layout, ManifestEntry, Stamp, entry, folders_of, stamp
from txsaga.resources.files.parquet import SUFFIX

MODES = ("xb", "wb")


class _Staged(NamedTuple):
    path: Path
    file: BinaryIO | None
    found: Stamp

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


class FolderWork:
    """The work of one branch in a folder."""

    def __init__(self, layout: Layout, branch: BranchId, session: int) -> None:
        self._layout, self._branch, self._session = layout, branch, session
        self._staged: dict[str, _Staged] = {}
        self._folders: set[str] = set()
        self._shapes: dict[str, parquet.ParquetShape] = {}
        self._count, self.closed = 0, False

    @property
    def used(self) -> bool:
        """Whether anything was staged."""
        return bool(self._staged)

    def fileno(self) -> int:
        """Return the descriptor of the staging folder, whose lock is the session."""
        return self._session

    def open(self, path: str | Path, mode: str = "xb") -> BinaryIO:
        """Open a file for writing; opening the same path again starts over."""
        self._require_open()
        if mode not in MODES:
            raise ConfigError(f"mode {mode!r} can't be coordinated; open a new file as 'xb', one to replace as 'wb'")
        target = self._target(path)
        found = stamp(self._layout.target(target))
        if found is not None and mode == "xb":
            raise FileExistsError(f"{target!r} is in the folder already; open it as 'wb' to replace it")
        permissions = _permissions(self._layout.target(target))
        if target in self._staged:
            self._staged[target].close()
        staged = self._next()
        file = staged.open("xb")
        if permissions is not None:
            os.fchmod(file.fileno(), permissions)
        self._keep({target: _Staged(staged, file, found)})
        return file

    def write(self, path: str | Path, data: bytes, mode: str = "xb") -> None:
        """Stage a whole file."""
        check_kind(data, bytes, "the data", "give bytes; text is encoded by you")
        with self.open(path, mode) as file:
            file.write(data)

    def append(self, directory: str | Path, rows: object, *, partitions: Sequence[str] = ()) -> int:
        """Stage rows as new part files of a Parquet directory; return how many rows.

        They are an Arrow table, batch or reader, or a Spark DataFrame; `partitions` are columns, one folder per value.
        """
        self._require_open()
        name, place = self._directory(directory), self._next()
        written = parquet.write(rows, place, partitions)
        shape = parquet.shape_of(written[0][0], place) if written else None
        if shape is not None:
            parquet.require_like(shape, self._shapes.get(name) or parquet.shape(self._layout.target(name)), name)
        fresh: dict[str, _Staged] = {}
        for path, _ in written:
            staged = self._next()
            part = f"part-{self._branch.transaction}-{self._branch.qualifier}-{staged.name}{SUFFIX}"
            target = self._target(PurePosixPath(name) / path.relative_to(place).parent / part)
            fresh[target] = _Staged(path.rename(staged), None, None)
        self._keep(fresh)
        if shape is not None:
            self._shapes[name] = shape
        rmtree(place, ignore_errors=True)
        return sum(count for _, count in written)

    def entries(self) -> list[ManifestEntry]:
        """Accept nothing more; sync everything and describe it."""
        self.closed = True
        self._require_session()
        for each in self._staged.values():
            each.close()
        return [entry(target, each.path, each.found) for target, each in self._staged.items()]

    def require_places(self) -> None:
        """Vote no if a target has changed. Only after reserving: before that, another branch may still place files."""
        for target, each in self._staged.items():
            if stamp(self._layout.target(target)) != each.found:
                raise IntegrityViolated(
                    f"branch {self._branch.gid} votes no: {target!r} was changed by others since it was opened"
                )
            if (other := self._layout.in_the_way(target)) is not None:
                raise IntegrityViolated(
                    f"branch {self._branch.gid} votes no: {target!r} can't be created, {other!r} is not a folder"
                )
        self._require_readable()

    def close(self) -> None:
        """Close open files; buffered data without a vote is dropped with the branch."""
        self.closed = True
        for each in self._staged.values():
            each.close()

    def _target(self, path: object) -> str:
        """Return a target's name; refuse one that is a folder of another target, or is inside another."""
        target = self._layout.writable(path)
        file = target if target in self._folders else next((f for f in folders_of(target) if f in self._staged), None)
        if file is not None:
            raise ConfigError(f"{file!r} can't be a file and a folder in one transaction; choose another path")
        return target

    def _directory(self, path: object) -> str:
        """Return the name of a directory for rows; refuse a file, or a path inside one."""
        name = self._layout.checked(path)
        self._target(PurePosixPath(name) / SUFFIX)
        return name

    def _keep(self, fresh: Mapping[str, _Staged]) -> None:
        self._staged |= fresh
        self._folders.update(folder for target in fresh for folder in folders_of(target))

    def _require_readable(self) -> None:
        """Vote no if a directory has got rows meanwhile that no reader could read together with ours."""
        for name, fresh in self._shapes.items():
            try:
                parquet.require_like(fresh, parquet.shape(self._layout.target(name)), name)
            except TableError as error:
                raise IntegrityViolated(f"branch {self._branch.gid} votes no: {error}") from error

    def _next(self) -> Path:
        self._count += 1
        return self._layout.staging(self._branch) / str(self._count)

    def _require_open(self) -> None:
        if self.closed:
            raise TransactionClosed("this branch was asked for its vote: it is too late to write")

    def _require_session(self) -> None:
        mine, there = os.fstat(self._session), self._layout.staging(self._branch).stat()
        if (mine.st_dev, mine.st_ino) != (there.st_dev, there.st_ino):
            raise CommunicationFailed(f"the staging folder of branch {self._branch.gid} was lost")


def _permissions(target: Path) -> int | None:
    """Return the permissions of the file to replace; refuse anything but a regular file."""
    try:
        mode = target.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not S_ISREG(mode):
        raise ConfigError(f"{str(target)!r} is not a regular file; give the path of a file, not of a folder or a link")
    return S_IMODE(mode)
