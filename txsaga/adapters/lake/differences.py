"""
What two snapshots of a table differ in: data files that came and went, and deletes that are kept beside them.

Manifests that both name are not read: what it costs depends on what was changed, not on the size of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile

from txsaga.adapters.lake import manifests
from txsaga.adapters.lake.storage import Storage

Snapshot = Mapping[str, Any] | None
Part = tuple[int, tuple[object, ...]]
"""A partition: the number of its spec, and its values."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What is in one snapshot and not in the other, by the paths of files."""

    added: Mapping[str, DataFile]
    gone: Mapping[str, DataFile]
    deletes: Mapping[str, DataFile]
    deletes_gone: Mapping[str, DataFile]
    carried: tuple[ManifestFile, ...] = ()
    """The manifests that only the later one names."""
    mixed: bool = False
    """Whether they name files of before, too."""

    @property
    def files(self) -> tuple[DataFile, ...]:
        """Everything that differs."""
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
