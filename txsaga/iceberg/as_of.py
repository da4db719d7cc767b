"""
A table as it was at a snapshot: metadata whose main ends there.
"""

from __future__ import annotations

from txsaga.iceberg.json_fields import Json


def snapshot_of(raw: Json, ref: str) -> int | None:
    """Return the snapshot that a branch or tag points at."""
    found = (raw.get("refs") or {}).get(ref)
    return None if found is None else int(found["snapshot-id"])


def as_of(raw: Json, snapshot: int) -> Json:
    """Return the metadata of a table as if nothing had happened after a snapshot."""
    known = {each["snapshot-id"]: each for each in raw.get("snapshots") or ()}
    kept, number = list[int](), snapshot
    while number in known:
        kept.append(number)
        number = known[number].get("parent-snapshot-id")
    listed = {
        key: [each for each in raw[key] if each.get("snapshot-id") in kept]
        for key in ("snapshots", "snapshot-log", "statistics", "partition-statistics")
        if raw.get(key)
    }
    schema = known[snapshot].get("schema-id", raw.get("current-schema-id"))
    main = {"main": {"type": "branch", "snapshot-id": snapshot}}
    return {**raw, **listed, "refs": main, "current-snapshot-id": snapshot, "current-schema-id": schema}
