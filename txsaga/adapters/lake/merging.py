"""
Keeping the list of manifests short: whenever some of about the same size have come together, they become one.

Each file is written anew a few times in its life, whatever comes later, and a table of a thousand commits names some
thirty manifests: what a commit costs stays what it was. If it were left out, everything would be right, and slower
with each commit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from pyiceberg.manifest import ManifestContent, ManifestFile

from txsaga.adapters.lake import manifests
from txsaga.adapters.lake.metadata import Metadata
from txsaga.adapters.lake.storage import Storage

WIDTH = 8
"""So many of a size become one of the next."""
SIZES = 4
"""Those of the last size are left alone: they are large enough."""


def merged(
    storage: Storage,
    metadata: Metadata,
    there: Sequence[ManifestFile],
    snapshot: int,
    name: Callable[[], str],
) -> list[ManifestFile]:
    """Return the manifests of a snapshot, the small ones put together; `name` names the file of one that is new."""
    chosen = _chosen(metadata, there)
    if not chosen:
        return list(there)
    io, paths = storage.io(metadata.location), {each.manifest_path for each in chosen}
    entries = [entry for each in chosen for entry in each.fetch_manifest_entry(io, discard_deleted=True)]
    spec = chosen[0].partition_spec_id
    one = manifests.rewritten(storage, metadata.parsed, spec, name(), snapshot, entries)
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
