"""
Appends on a table that has changed since: where the table allows it, they are put on top of whatever is there.

A client that looked for rows before (an upsert that found none, an overwrite of nothing) also says that it appends.
So the table must say that nobody does: `txsaga.appends.on-top`. Everything else
that is based on an old snapshot is refused, and the client decides whether to try again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from txsaga.iceberg.json_fields import Json

ON_TOP = "txsaga.appends.on-top"
"""The property of a table whose appends do not depend on the rows that are there."""
TOTALS = {
    "total-data-files": "added-data-files",
    "total-records": "added-records",
    "total-files-size": "added-files-size",
    "total-delete-files": "",
    "total-position-deletes": "",
    "total-equality-deletes": "",
}
"""What a summary counts, and by which other count of it an append adds to that."""


class Append(NamedTuple):
    """A commit that adds files to main, and changes nothing else."""

    snapshot: Mapping[str, Any]
    base: int | None
    requirements: Sequence[Json]
    """Those besides the snapshot that it was based on."""

    def moves_on(self, raw: Mapping[str, Any]) -> bool:
        """Return whether it is put on top of what is newer than its base, which the table must still name."""
        newest, told = raw.get("current-snapshot-id"), raw.get("properties") or {}
        if told.get(ON_TOP) != "true" or raw["format-version"] != 2 or self.base == (None if newest == -1 else newest):
            return False
        parents = {each["snapshot-id"]: each.get("parent-snapshot-id") for each in raw.get("snapshots") or ()}
        while newest in parents and newest != self.base:
            newest = parents.pop(newest)  # each once, even in a circle
        return newest == self.base

    def on(self, current: Mapping[str, Any] | None, *, sequence: int, manifest_list: str, moment: int) -> list[Json]:
        """Return the updates that put it on top of a snapshot."""
        told, before = self.snapshot["summary"], {} if current is None else current.get("summary") or {}
        totals = {
            total: str(int(before.get(total, 0)) + int(told.get(added, 0)))
            for total, added in TOTALS.items()
            if current is None or total in before
        }
        own = {key: value for key, value in told.items() if not key.startswith("total-")}
        snapshot = {
            **self.snapshot,
            "sequence-number": sequence,
            "timestamp-ms": max(moment, self.snapshot["timestamp-ms"]),
            "manifest-list": manifest_list,
            "summary": {**own, **totals},
        }
        snapshot.pop("parent-snapshot-id", None)
        if current is not None:
            snapshot["parent-snapshot-id"] = current["snapshot-id"]
        pointing = {"ref-name": "main", "type": "branch", "snapshot-id": snapshot["snapshot-id"]}
        return [{"action": "add-snapshot", "snapshot": snapshot}, {"action": "set-snapshot-ref", **pointing}]


def append_in(requirements: Sequence[Json], updates: Sequence[Json]) -> Append | None:
    """Return the append that a commit is; None if it is something else."""
    actions = {each.get("action"): each for each in updates}
    based = [each for each in requirements if each.get("type") == "assert-ref-snapshot-id"]
    if len(updates) != 2 or actions.keys() != {"add-snapshot", "set-snapshot-ref"} or len(based) != 1:
        return None
    snapshot, pointing = actions["add-snapshot"].get("snapshot"), actions["set-snapshot-ref"]
    if not isinstance(snapshot, dict) or not isinstance(snapshot.get("summary"), dict):
        return None
    to_main = based[0].get("ref") == pointing.get("ref-name") == "main" and pointing.get("type") == "branch"
    same = pointing.get("snapshot-id") == snapshot.get("snapshot-id") is not None
    if not (to_main and same and snapshot["summary"].get("operation") == "append" and "manifest-list" in snapshot):
        return None
    return Append(snapshot, based[0].get("snapshot-id"), [each for each in requirements if each is not based[0]])


def touches_snapshots(updates: Sequence[Json]) -> bool:
    """Return whether a commit adds or removes snapshots, or points branches elsewhere."""
    return any("snapshot" in str(each.get("action")).lower() for each in updates)
