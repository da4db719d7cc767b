"""
What a branch changed, carried onto a table that was changed elsewhere since: partition by partition, or not at all.

A partition belongs to one of the two: where both the branch and somebody else changed something in it, rows would be
lost or deletes undone, and the transaction rolls back. A table without partitions is one partition. If a change were
let through here that met another one, nobody would ever be told.
"""

from __future__ import annotations

from pyiceberg.manifest import ManifestContent

from txsaga.adapters.lake import differences, manifests
from txsaga.adapters.lake.differences import Difference, Snapshot
from txsaga.adapters.lake.metadata import Metadata
from txsaga.adapters.lake.overwriting import REMEDY, Replaced
from txsaga.adapters.lake.storage import Storage
from txsaga.errors import TableMoved
from txsaga.model.table import TableWrite


def rebased(storage: Storage, metadata: Metadata, write: TableWrite, now: Snapshot) -> Replaced:
    """Return what a branch replaces of a newer snapshot, and what it adds; `TableMoved` where that is not exact."""
    if not write.rebase:
        raise TableMoved(
            f"table {write.name} was changed while its branch was written, which looks for, deletes or replaces rows; "
            f"{REMEDY}"
        )
    base, head = ends(metadata, write)
    ours, theirs = differences.between(storage, base, head), differences.between(storage, base, now)
    _require_apart(write, ours, theirs)
    return _carried(write, ours) if ours.deletes else _copied(storage, write, ours, now)


def ends(metadata: Metadata, write: TableWrite) -> tuple[Snapshot, Snapshot]:
    """Return the snapshots that a branch was begun from, and that was recorded of it."""
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
    """Return what goes where whole files were written anew."""
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
    """Return the manifests of a branch that keeps deletes beside files, as they are: their numbers order them."""
    if ours.gone or ours.deletes_gone or ours.mixed:
        raise TableMoved(
            f"branch {write.branch} of {write.name} has deletes beside files and files that were written anew; {REMEDY}"
        )
    return Replaced(carried=list(ours.carried), delete_files=list(ours.deletes.values()))
