"""
What an overwrite replaces, and whether that is still what it is based on.

The files of its partitions, deletes included, are compared by name between the snapshot that it is based on and the
newest one: any difference is another writer's work, which the overwrite would silently undo.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestFile

from txsaga.errors import TableMoved
from txsaga.lake import manifests
from txsaga.lake.metadata import Metadata
from txsaga.lake.partition_values import matches
from txsaga.lake.storage import Storage
from txsaga.lake.table import TableWrite

REMEDY = "begin anew, on what is there now"


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
            raise TableMoved(f"what an overwrite of {write.name} has seen is no longer known; {REMEDY}")
        before = _of(storage, metadata, write, seen)
        if (before.paths, before.deletes) != (found.paths, found.deletes):
            raise TableMoved(f"table {write.name} was changed where it is overwritten; {REMEDY}")
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
