"""
The difference between two snapshots of a table: data files and delete files that were added or removed.

Manifests that both snapshots list are not read: the cost depends on the size of the change, not of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile

from txsaga.errors import TableMoved
from txsaga.lake import manifests
from txsaga.lake.metadata import Metadata
from txsaga.lake.overwriting import REMEDY, Replaced
from txsaga.lake.storage import Storage
from txsaga.lake.table import TableWrite

Snapshot = Mapping[str, Any] | None
Part = tuple[int, tuple[object, ...]]
"""A partition: the id of its spec, and its values."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What only one of two snapshots contains, by file path."""

    added: Mapping[str, DataFile]
    gone: Mapping[str, DataFile]
    deletes: Mapping[str, DataFile]
    deletes_gone: Mapping[str, DataFile]
    carried: tuple[ManifestFile, ...] = ()
    """The manifests that only the later snapshot lists."""
    mixed: bool = False
    """Whether those manifests also list files of the earlier snapshot."""

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All files that differ."""
        return tuple(
            file for part in (self.added, self.gone, self.deletes, self.deletes_gone) for file in part.values()
        )

    @property
    def parts(self) -> set[Part]:
        """The partitions in which something differs."""
        return {part_of(file) for file in self.files}


def between(storage: Storage, before: Snapshot, after: Snapshot) -> Difference:
    """Compare two snapshots."""
    one, other = manifests.listed(storage, before), manifests.listed(storage, after)
    both = {each.manifest_path for each in one} & {each.manifest_path for each in other}
    old, old_deletes = _live(storage, (each for each in one if each.manifest_path not in both))
    carried = tuple(each for each in other if each.manifest_path not in both)
    new, new_deletes = _live(storage, carried)
    added, deletes = _without(new, old), _without(new_deletes, old_deletes)
    return Difference(
        added=added,
        gone=_without(old, new),
        deletes=deletes,
        deletes_gone=_without(old_deletes, new_deletes),
        carried=carried,
        mixed=len(new) + len(new_deletes) > len(added) + len(deletes),
    )


def part_of(file: DataFile) -> Part:
    """Return the partition of a file."""
    return file.spec_id, tuple(file.partition[at] for at in range(len(file.partition)))


def _live(storage: Storage, listed: Iterable[ManifestFile]) -> tuple[dict[str, DataFile], dict[str, DataFile]]:
    data, deletes = dict[str, DataFile](), dict[str, DataFile]()
    for manifest in listed:
        found = data if manifest.content == ManifestContent.DATA else deletes
        for entry in manifest.fetch_manifest_entry(storage.io(manifest.manifest_path), discard_deleted=True):
            found[entry.data_file.file_path] = entry.data_file
    return data, deletes


def _without(files: Mapping[str, DataFile], others: Mapping[str, DataFile]) -> dict[str, DataFile]:
    return {path: file for path, file in files.items() if path not in others}


def rebased(storage: Storage, metadata: Metadata, write: TableWrite, now: Snapshot) -> Replaced:
    """Return what a branch replaces in a newer snapshot, and what it adds; raise `TableMoved` if that is not exact."""
    if not write.rebase:
        raise TableMoved(
            f"table {write.name} was changed while its branch was written, which looks for, deletes or replaces rows; "
            f"{REMEDY}"
        )
    base, head = ends(metadata, write)
    ours, theirs = between(storage, base, head), between(storage, base, now)
    _require_apart(write, ours, theirs)
    return _carried(write, ours) if ours.deletes else _copied(storage, write, ours, now)


def ends(metadata: Metadata, write: TableWrite) -> tuple[Snapshot, Snapshot]:
    """Return the snapshot that a branch was begun from, and the recorded head of the branch."""
    base, head = (None if each is None else metadata.snapshot(each) for each in (write.base, write.head))
    if head is None or (base is None and write.base is not None):
        raise TableMoved(f"what branch {write.branch} of {write.name} was written on is no longer known; {REMEDY}")
    return base, head


def _require_apart(write: TableWrite, ours: Difference, theirs: Difference) -> None:
    specs = {file.spec_id for file in (*ours.files, *theirs.files)}
    if ours.parts & theirs.parts or len(specs) > 1:
        raise TableMoved(
            f"table {write.name} was changed in a partition that its branch changes too, or partitioned anew; {REMEDY}"
        )


def _copied(storage: Storage, write: TableWrite, ours: Difference, now: Snapshot) -> Replaced:
    """Return what a branch that rewrote whole files replaces in a newer snapshot."""
    if ours.deletes_gone or (ours.added and write.manifest is None):
        raise TableMoved(f"what branch {write.branch} of {write.name} changed can't be carried over; {REMEDY}")
    found = Replaced(files=list(ours.gone.values()))
    for manifest in manifests.listed(storage, now):
        if manifest.content != ManifestContent.DATA:
            continue
        io = storage.io(manifest.manifest_path)
        entries = manifest.fetch_manifest_entry(io, discard_deleted=True)
        if any(entry.data_file.file_path in ours.gone for entry in entries):
            found.entries[manifest.manifest_path] = entries
    return found


def _carried(write: TableWrite, ours: Difference) -> Replaced:
    """Return the manifests of a branch with delete files unchanged: their sequence numbers order them."""
    if ours.gone or ours.deletes_gone or ours.mixed:
        raise TableMoved(
            f"branch {write.branch} of {write.name} has deletes beside files and files that were written anew; {REMEDY}"
        )
    return Replaced(carried=list(ours.carried), delete_files=list(ours.deletes.values()))
