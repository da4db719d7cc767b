"""
What a write changes: what an overwrite or a branch replaces, and how two snapshots differ.

The files of an overwrite's partitions, deletes included, are compared by name between the snapshot that it is based on
and the newest one: any difference is another writer's work, which the overwrite would silently undo. Manifests that two
snapshots both list are not read: the cost depends on the size of the change, not of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestFile

from txsaga.errors import TableMoved
from txsaga.lake import manifests
from txsaga.lake.metadata import Metadata
from txsaga.lake.partition_values import matches
from txsaga.lake.storage import Storage
from txsaga.lake.table import TableWrite, WriteMode

REMEDY = "begin again on the current table"


@dataclass(slots=True)
class Replaced:
    """The files to be removed, and all entries of the manifests that list them."""

    files: list[DataFile] = field(default_factory=list)
    entries: dict[str, Sequence[ManifestEntry]] = field(default_factory=dict)
    deletes: set[str] = field(default_factory=set)
    carried: list[ManifestFile] = field(default_factory=list)
    """Manifests of a branch that replace ours: their deletes apply to older files only."""
    delete_files: list[DataFile] = field(default_factory=list)
    """The delete files in those manifests."""

    @property
    def paths(self) -> set[str]:
        """The locations of the files."""
        return {file.file_path for file in self.files}


def replaced(storage: Storage, metadata: Metadata, write: TableWrite, now: Mapping[str, Any] | None = None) -> Replaced:
    """Return what an overwrite replaces; raise `TableMoved` if that has changed since its base."""
    newest = metadata.current
    number = None if newest is None else newest["snapshot-id"]
    found = _of(storage, metadata, write, newest)
    if number != write.base:
        seen = None if write.base is None else metadata.snapshot(write.base)
        if write.base is not None and seen is None:
            raise TableMoved(f"the snapshot that an overwrite of {write.name} has seen is no longer known; {REMEDY}")
        before = _of(storage, metadata, write, seen)
        if (before.paths, before.deletes) != (found.paths, found.deletes):
            raise TableMoved(f"table {write.name} was changed in the part that is overwritten; {REMEDY}")
    if now is not None and now is not newest and now.get("snapshot-id") != number:
        return _of(storage, metadata, write, now)  # after an earlier write of this transaction
    return found


def _of(storage: Storage, metadata: Metadata, write: TableWrite, snapshot: Mapping[str, Any] | None) -> Replaced:
    io, found = storage.io(metadata.location), Replaced()
    for manifest in manifests.listed(storage, snapshot):
        entries = manifest.fetch_manifest_entry(io, discard_deleted=True)
        files = [
            each.data_file for each in entries if matches(metadata.parsed, each.data_file, write.where, write.name)
        ]
        if manifest.content != ManifestContent.DATA:
            found.deletes |= {file.file_path for file in files}
        elif files:
            found.files += files
            found.entries[manifest.manifest_path] = entries
    return found


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
            f"table {write.name} was changed while its branch was written, and the branch searches, deletes or "
            f"replaces rows; {REMEDY}"
        )
    base, head = ends(metadata, write)
    ours, theirs = between(storage, base, head), between(storage, base, now)
    _require_apart(write, ours, theirs)
    return _carried(write, ours) if ours.deletes else _copied(storage, write, ours, now)


def ends(metadata: Metadata, write: TableWrite) -> tuple[Snapshot, Snapshot]:
    """Return the snapshot that a branch was begun from, and the recorded head of the branch."""
    base, head = (None if each is None else metadata.snapshot(each) for each in (write.base, write.head))
    if head is None or (base is None and write.base is not None):
        raise TableMoved(f"the base of branch {write.branch} of {write.name} is no longer known; {REMEDY}")
    return base, head


def _require_apart(write: TableWrite, ours: Difference, theirs: Difference) -> None:
    specs = {file.spec_id for file in (*ours.files, *theirs.files)}
    if ours.parts & theirs.parts or len(specs) > 1:
        raise TableMoved(
            f"table {write.name} was changed in a partition that its branch changes too, or was repartitioned; {REMEDY}"
        )


def _copied(storage: Storage, write: TableWrite, ours: Difference, now: Snapshot) -> Replaced:
    """Return what a branch that rewrote whole files replaces in a newer snapshot."""
    if ours.deletes_gone or (ours.added and write.manifest is None):
        raise TableMoved(f"the changes of branch {write.branch} of {write.name} can't be carried over; {REMEDY}")
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
        raise TableMoved(f"branch {write.branch} of {write.name} has both delete files and rewritten files; {REMEDY}")
    return Replaced(carried=list(ours.carried), delete_files=list(ours.deletes.values()))


TRANSACTION = "txsaga-transaction"
"""The summary key for a snapshot's transaction: a second witness while the snapshot exists."""


def summary_of(write: TableWrite, gone: Replaced, before: Mapping[str, str] | None) -> dict[str, str]:
    """Return the summary of a write."""
    removed = manifests.totals(gone.files)
    summary = {"operation": "append" if write.mode is WriteMode.APPEND else "overwrite", **write.properties}
    changes = {
        "added-data-files": write.files,
        "added-records": write.rows,
        "added-files-size": write.size,
        "deleted-data-files": removed["files"],
        "deleted-records": removed["rows"],
        "removed-files-size": removed["size"],
    }
    totals = {
        "total-data-files": write.files - removed["files"],
        "total-records": write.rows - removed["rows"],
        "total-files-size": write.size - removed["size"],
    }
    summary |= {key: str(value) for key, value in changes.items() if value}
    for key, change in totals.items():
        known = 0 if before is None else before.get(key)
        if known is not None:
            summary[key] = str(int(known) + change)
    for content, key in enumerate(("total-delete-files", "total-position-deletes", "total-equality-deletes")):
        of_kind = [file for file in gone.delete_files if content in (0, file.content)]
        added = sum(file.record_count for file in of_kind) if content else len(of_kind)
        summary[key] = str(added + int(0 if before is None else before.get(key, 0)))
    return summary
