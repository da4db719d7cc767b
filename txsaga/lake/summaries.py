"""The summary of a snapshot: what it adds and removes, and the table's totals, in the format of every engine."""

from __future__ import annotations

from collections.abc import Mapping

from txsaga.lake.overwriting import Replaced
from txsaga.lake.table import TableWrite, WriteMode

TRANSACTION = "txsaga-transaction"
"""The summary key for a snapshot's transaction: a second witness while the snapshot exists."""


def of(write: TableWrite, gone: Replaced, before: Mapping[str, str] | None) -> dict[str, str]:
    """Return the summary of a write."""
    removed_rows, removed_size = (
        sum(file.record_count for file in gone.files),
        sum(file.file_size_in_bytes for file in gone.files),
    )
    summary = {"operation": "append" if write.mode is WriteMode.APPEND else "overwrite", **write.properties}
    changes = {
        "added-data-files": write.files,
        "added-records": write.rows,
        "added-files-size": write.size,
        "deleted-data-files": len(gone.files),
        "deleted-records": removed_rows,
        "removed-files-size": removed_size,
    }
    totals = {
        "total-data-files": write.files - len(gone.files),
        "total-records": write.rows - removed_rows,
        "total-files-size": write.size - removed_size,
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
