"""Metadata of tables, and updates of it, that tests begin with."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from txsaga.iceberg.json_fields import Json
from txsaga.iceberg.table_metadata import new_table, updated

UUID_1, UUID_2 = "9c12d441-03fe-4693-9a96-a0705ddf69c1", "00000000-0000-4000-8000-000000000002"
NOW = 1_700_000_000_000


def field(number: int, name: str, kind: Any = "long", **more: Any) -> Json:
    return {"id": number, "name": name, "required": False, "type": kind, **more}


def schema_of(*fields: Json, **more: Any) -> Json:
    return {"type": "struct", "fields": list(fields), **more}


ID, TS, POINT = (
    field(1, "id", required=True),
    field(2, "ts", "timestamp"),
    field(3, "p", schema_of(field(4, "x", "int"))),
)
SCHEMA = schema_of(ID, TS, POINT, **{"schema-id": 0})
BY_DAY: Json = {"spec-id": 1, "fields": [{"source-id": 2, "field-id": 1000, "name": "ts_day", "transform": "day"}]}
BY_ID: Json = {
    "order-id": 1,
    "fields": [{"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}],
}


def table(version: int = 2, /, **more: Any) -> Json:
    properties = {"format-version": str(version)} | more.pop("properties", {})
    request = {"name": "t", "schema": SCHEMA, "properties": properties, **more}
    return new_table(request, "s3://bucket/t", uuid=UUID_1, moment=NOW)


def snapshot(number: int, version: int = 2, /, **more: Any) -> Json:
    found: Json = {
        "snapshot-id": number,
        "timestamp-ms": NOW + number,
        "manifest-list": f"s3://m{number}",
        "schema-id": 0,
    }
    found |= {"summary": {"operation": "append"}} | ({"sequence-number": number} if version > 1 else {})
    found |= {"parent-snapshot-id": number - 1} if number > 1 else {}
    if version > 2:
        found |= {"first-row-id": 10 * (number - 1), "added-rows": 10}
    return found | more


def add(number: int, version: int = 2, /, **more: Any) -> Json:
    return {"action": "add-snapshot", "snapshot": snapshot(number, version, **more)}


def point(name: str, number: int, kind: str = "branch", /, **more: Any) -> Json:
    return {"action": "set-snapshot-ref", "ref-name": name, "type": kind, "snapshot-id": number, **more}


def append(number: int, version: int = 2) -> list[Json]:
    return [add(number, version), point("main", number)]


def change(raw: Json, *updates: Json, moment: int = NOW + 1000) -> Json:
    """Apply updates: neither argument changes, and PyIceberg can read the result."""
    before, asked = deepcopy(raw), deepcopy(list(updates))
    after = updated(raw, updates, moment=moment)
    assert (raw, list(updates)) == (before, asked)
    parsed(after)
    return after


def parsed(raw: Json) -> TableMetadata:
    return TableMetadataUtil.parse_obj(deepcopy(raw))


@cache
def with_snapshots(count: int, version: int = 2) -> Json:
    raw = table(version)
    for number in range(1, count + 1):
        raw = updated(raw, append(number, version), moment=NOW)
    return raw


CREATE: list[Json] = [
    {"action": "assign-uuid", "uuid": UUID_1},
    {"action": "upgrade-format-version", "format-version": 2},
    {"action": "add-schema", "schema": SCHEMA},
    {"action": "set-current-schema", "schema-id": -1},
    {"action": "add-spec", "spec": {**BY_DAY, "spec-id": 0}},
    {"action": "set-default-spec", "spec-id": -1},
    {"action": "add-sort-order", "sort-order": BY_ID},
    {"action": "set-default-sort-order", "sort-order-id": -1},
    {"action": "set-location", "location": "s3://bucket/t"},
    {"action": "set-properties", "updates": {"owner": "me"}},
]
