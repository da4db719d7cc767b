"""
Manifests: the list of files that one write adds, written once and named by every attempt to publish it.

The record of a manifest is JSON, so that any process can put it into the next snapshot without reading the manifest.
What the lists of other engines name is carried over unchanged.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from copy import copy
from typing import Any, Literal

from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
    read_manifest_list,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table.metadata import TableMetadata

from txsaga.lake.metadata import Metadata
from txsaga.lake.storage import Storage
from txsaga.lake.table import TablePlace

UNASSIGNED = -1
"""The sequence number of an unpublished manifest."""
CODEC: Literal["deflate"] = "deflate"
COUNTS = (
    *("manifest_path", "manifest_length", "partition_spec_id", "added_snapshot_id", "min_sequence_number"),
    *("added_files_count", "existing_files_count", "deleted_files_count"),
    *("added_rows_count", "existing_rows_count", "deleted_rows_count"),
)


def staged(
    storage: Storage, metadata: Metadata, place: TablePlace, snapshot: int, files: Sequence[DataFile]
) -> dict[str, object]:
    """Write the manifest of files of one spec that a snapshot adds, and return its record."""
    location = f"{metadata.folder('metadata')}/_txsaga-{'-'.join(map(str, place))}.avro"
    spec, output = metadata.parsed.specs()[files[0].spec_id], storage.io(location).new_output(location)
    with write_manifest(2, spec, metadata.parsed.schema(), output, snapshot, CODEC) as writer:
        for file in files:
            writer.add(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=snapshot,
                    sequence_number=None,
                    file_sequence_number=None,
                    data_file=file,
                )
            )
    storage.keep([location])
    return record(writer.to_manifest_file())


def totals(files: Sequence[DataFile]) -> dict[str, Any]:
    """Return how many files, rows and bytes a write adds."""
    rows, size = (sum(getattr(file, name) for file in files) for name in ("record_count", "file_size_in_bytes"))
    return {"files": len(files), "rows": rows, "size": size}


def rewritten(
    storage: Storage,
    metadata: TableMetadata,
    number: int,
    location: str,
    snapshot: int,
    entries: Iterable[ManifestEntry],
    gone: Container[str] = (),
) -> ManifestFile:
    """Rewrite entries of one partition spec, marking the files in `gone` as deleted by a snapshot."""
    io, spec = storage.io(location), metadata.specs()[number]
    with write_manifest(2, spec, metadata.schema(), io.new_output(location), snapshot, CODEC) as writer:
        for entry in entries:
            (writer.delete if entry.data_file.file_path in gone else writer.existing)(entry)
    return writer.to_manifest_file()


KEPT_LISTS = 256
_known = OrderedDict[str, tuple[ManifestFile, ...]]()
"""The manifest lists that this process wrote or read last: the next publication starts from one of them.

A list never changes, so no entry can be stale; reading one takes longer than writing the next.
"""


def _remember(location: str, manifests: Sequence[ManifestFile]) -> None:
    _known[location] = tuple(manifests)
    while len(_known) > KEPT_LISTS:
        _known.popitem(last=False)


def listed(storage: Storage, snapshot: Mapping[str, Any] | None) -> list[ManifestFile]:
    """Return the manifests of a snapshot that list live files, or deletes."""
    if snapshot is None:
        return []
    location = snapshot["manifest-list"]
    found = _known.get(location)
    if found is None:
        found = tuple(read_manifest_list(storage.io(location).new_input(location)))
        _remember(location, found)
    return [
        each
        for each in found
        if each.content != ManifestContent.DATA or _counts(each, "added") or _counts(each, "existing")
    ]


def added_by(storage: Storage, snapshot: Mapping[str, Any]) -> list[ManifestFile]:
    """Return what another engine's append adds, as unpublished manifests; `ValueError` if it merged older ones."""
    found = read_manifest_list(storage.io(snapshot["manifest-list"]).new_input(snapshot["manifest-list"]))
    added = [each for each in found if each.added_snapshot_id == snapshot["snapshot-id"]]
    for each in added:
        if each.content != ManifestContent.DATA or _counts(each, "existing") or _counts(each, "deleted"):
            raise ValueError("main has changed, and this append merged its manifests with older ones")
        each.sequence_number = each.min_sequence_number = UNASSIGNED
    return added


def list_written(
    storage: Storage,
    location: str,
    manifests: Sequence[ManifestFile],
    *,
    snapshot: int,
    parent: int | None,
    sequence: int,
) -> None:
    """Write a snapshot's manifest list."""
    output = storage.io(location).new_output(location)
    with write_manifest_list(2, output, snapshot, parent, sequence, CODEC) as writer:
        writer.add_manifests(list(manifests))
    _remember(location, [_numbered(each, sequence) for each in manifests])


def _numbered(manifest: ManifestFile, sequence: int) -> ManifestFile:
    """Return a manifest as a reader of its list sees it: a new one has the sequence number of its snapshot."""
    found = copy(manifest)
    if found.sequence_number == UNASSIGNED:
        found.sequence_number = sequence
    if found.min_sequence_number == UNASSIGNED:
        found.min_sequence_number = sequence
    return found


def record(manifest: ManifestFile) -> dict[str, object]:
    """Return a manifest as JSON."""
    partitions = [
        [each.contains_null, each.contains_nan, _hex(each.lower_bound), _hex(each.upper_bound)]
        for each in manifest.partitions or ()
    ]
    return {**{name: getattr(manifest, name) for name in COUNTS}, "partitions": partitions}


def read(record: Mapping[str, Any]) -> ManifestFile:
    """Read the result of `record`; the sequence number is that of the snapshot that names it."""
    partitions = [
        PartitionFieldSummary.from_args(
            contains_null=null, contains_nan=nan, lower_bound=_bytes(low), upper_bound=_bytes(high)
        )
        for null, nan, low, high in record["partitions"]
    ]
    return ManifestFile.from_args(
        _table_format_version=2,
        **{name: record[name] for name in COUNTS},
        content=ManifestContent.DATA,
        sequence_number=UNASSIGNED,
        partitions=partitions,
        key_metadata=None,
    )


def _counts(manifest: ManifestFile, which: str) -> bool:
    count = getattr(manifest, f"{which}_files_count")
    return count is None or count > 0


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else bytes.fromhex(value)


WIDTH = 8
"""The number of manifests of one size that are merged into one of the next."""
SIZES = 4
"""Manifests of this size or above are large enough and not merged."""


def merged(
    storage: Storage, metadata: Metadata, there: Sequence[ManifestFile], snapshot: int, name: Callable[[], str]
) -> list[ManifestFile]:
    """Return the manifests of a snapshot with small ones merged; `name` returns the location of a new one."""
    chosen = _chosen(metadata, there)
    if not chosen:
        return list(there)
    io, paths = storage.io(metadata.location), {each.manifest_path for each in chosen}
    entries = [entry for each in chosen for entry in each.fetch_manifest_entry(io, discard_deleted=True)]
    spec = chosen[0].partition_spec_id
    one = rewritten(storage, metadata.parsed, spec, name(), snapshot, entries)
    return [one, *(each for each in there if each.manifest_path not in paths)]


def _chosen(metadata: Metadata, there: Sequence[ManifestFile]) -> list[ManifestFile]:
    sizes = defaultdict[int, list[ManifestFile]](list)
    for each in there:
        ours = each.content == ManifestContent.DATA and each.partition_spec_id == metadata.raw["default-spec-id"]
        size = _size(each)
        if ours and size < SIZES:
            sizes[size].append(each)
    return next((found for _, found in sorted(sizes.items()) if len(found) >= WIDTH), [])


def _size(manifest: ManifestFile) -> int:
    files, size = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0), 0
    while files >= WIDTH:
        files, size = files // WIDTH, size + 1
    return size
