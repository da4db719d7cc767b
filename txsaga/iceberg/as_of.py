"""
A table as it was at a snapshot: metadata whose main ends there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from txsaga.iceberg.json_fields import Json

LISTS = {"current-schema-id": "schemas", "default-spec-id": "partition-specs", "default-sort-order-id": "sort-orders"}
"""What a table has one of at a time, and where all of them are."""
IDS = {"current-schema-id": "schema-id", "default-spec-id": "spec-id", "default-sort-order-id": "order-id"}


def snapshot_of(raw: Json, ref: str) -> int | None:
    """Return the snapshot that a branch or tag points at."""
    found = (raw.get("refs") or {}).get(ref)
    return None if found is None else int(found["snapshot-id"])


def as_of(raw: Json, snapshot: int | None, then: Mapping[str, int] | None = None) -> Json:
    """Return the metadata of a table as if main ended at a snapshot, with the schema, spec and order of `then`.

    Whoever sees only this must not delete files: those that are newer would look like nobody's.
    """
    kept = {each["snapshot-id"]: each for each in _lineage(raw, snapshot)}
    log = [each for each in raw.get("snapshot-log") or () if each["snapshot-id"] in kept]
    if snapshot is not None and (not log or log[-1]["snapshot-id"] != snapshot):
        log.append({"timestamp-ms": kept[snapshot]["timestamp-ms"], "snapshot-id": snapshot})
    chosen = {
        key: id for key, id in (then or {}).items() if any(each[IDS[key]] == id for each in raw.get(LISTS[key]) or ())
    }
    statistics = {
        key: [each for each in raw[key] if each.get("snapshot-id") in kept]
        for key in ("statistics", "partition-statistics")
        if raw.get(key)
    }
    return {
        **raw,
        **chosen,
        **statistics,
        "snapshots": [each for each in raw.get("snapshots") or () if each["snapshot-id"] in kept],
        "snapshot-log": log,
        "refs": {} if snapshot is None else {"main": {"type": "branch", "snapshot-id": snapshot}},
        "current-snapshot-id": -1 if snapshot is None else snapshot,
        "properties": {**(raw.get("properties") or {}), "gc.enabled": "false"},
    }


def _lineage(raw: Json, snapshot: int | None) -> Iterator[Json]:
    """Yield a snapshot and its known ancestors."""
    known = {each["snapshot-id"]: each for each in raw.get("snapshots") or ()}
    while snapshot in known:
        found = known.pop(snapshot)  # each once, even in a circle
        yield found
        snapshot = found.get("parent-snapshot-id")
