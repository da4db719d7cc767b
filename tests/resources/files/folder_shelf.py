"""A shelf whose items are files of a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from txsaga.core.decision import Decision
from txsaga.flows.branch import BranchId
from txsaga.resources.files.folder import Folder, FolderParticipant
from txsaga.resources.files.staging import FolderWork

NOTES = "notes.txt"


class FolderShelf:
    """Items of one folder."""

    def __init__(self, root: Path, participant: FolderParticipant) -> None:
        self._root, self._participant = root, participant

    def put(self, handle: object, item: int) -> None:
        """Write an item through the handle of a branch."""
        assert isinstance(handle, FolderWork)
        handle.write(f"items/{item}", str(item).encode())

    def items(self) -> set[int]:
        """Return the items that lie in the folder."""
        return {int(path.name) for path in self._root.glob("items/*")}

    def spoil(self, handle: object) -> None:
        """Let somebody write a file that a branch replaces."""
        assert isinstance(handle, FolderWork)
        handle.write(NOTES, b"mine", "wb")
        (self._root / NOTES).write_bytes(b"theirs")

    def cut(self, handle: object) -> None:
        """Take the descriptor away that holds the lock of the staging folder."""
        assert isinstance(handle, FolderWork)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, handle.fileno(), inheritable=False)
        os.close(nothing)

    def overrule(self, branch: BranchId, decision: Decision) -> None:
        """Decide a prepared branch as a person with another program would."""
        self._participant.finish(branch, decision)

    def kept(self, branch: BranchId) -> bool:
        """Tell whether anything of a branch is kept."""
        return bool(list((self._root / ".txsaga").glob(f"{branch.transaction}/{branch.qualifier}*")))

    @contextmanager
    def foreign(self) -> Iterator[None]:
        """Hold what looks like a vote and is named by another program."""
        theirs = self._root / ".txsaga" / "nightly-copy" / "1.1" / "manifest.json"
        theirs.parent.mkdir(parents=True)
        theirs.write_text("{}")
        yield
        assert theirs.read_text() == "{}"


class ParquetShelf(FolderShelf):
    """Items are rows, two to each append, in two files."""

    def put(self, handle: object, item: int) -> None:
        """Append an item through the handle of a branch."""
        assert isinstance(handle, FolderWork)
        rows = pa.table({"item": [item, item], "half": [0, 1]})
        assert handle.append("items", rows, partitions=["half"]) == 2

    def items(self) -> set[int]:
        """Return the items whose files are all there."""
        halves = [set[int](), set[int]()]
        for path in Folder(self._root).files("items"):
            halves[int(path.parent.name[-1])] |= set(parquet.ParquetFile(path).read().column("item").to_pylist())
        assert halves[0] == halves[1]
        return halves[0]
