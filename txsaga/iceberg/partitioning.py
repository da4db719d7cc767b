"""Partition specs and sort orders in their JSON form: both derive fields from columns by transforms."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from txsaga.iceberg.columns import HIGHEST_ID, Columns, base_type
from txsaga.iceberg.json_fields import Json, an_object, array, integer, shown, text
from txsaga.iceberg.refusals import BadUpdate

FIRST_FIELD = 1000
"""The id of the first partition field of a table."""

_TIMES = {"timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"}
_DATES = _TIMES | {"date"}
SOURCES: Mapping[str, set[str]] = {
    "bucket": _DATES | {"int", "long", "decimal", "time", "string", "fixed", "binary", "uuid"},
    "truncate": {"int", "long", "decimal", "string", "binary"},
    "year": _DATES,
    "month": _DATES,
    "day": _DATES,
    "hour": _TIMES,
}
"""The types that a transform takes; others take every primitive type."""

NEVER_SOURCES = {"variant", "geometry", "geography"}
_WIDTH = re.compile(r"(bucket|truncate)\[([1-9]\d{0,8})\]")


def read_fields(raw: Json) -> list[Json]:
    """Return the fields of a partition spec, each of the right form."""
    fields = [an_object(each, "partition field") for each in array(raw, "fields")]
    for each in fields:
        integer(each, "source-id")
        text(each, "name")
        _transform(each)
        if each.get("field-id") is not None and not 0 <= integer(each, "field-id") <= HIGHEST_ID:
            raise BadUpdate(f"Invalid partition field id: {each['field-id']}")
    return fields


def read_order(raw: Json) -> list[Json]:
    """Return the fields of a sort order, each of the right form."""
    return [_sort_field(an_object(each, "sort field")) for each in array(raw, "fields")]


def _sort_field(raw: Json) -> Json:
    integer(raw, "source-id")
    _transform(raw)
    direction, nulls = text(raw, "direction").lower(), text(raw, "null-order").lower()
    if direction not in ("asc", "desc"):
        raise BadUpdate(f"Invalid sort direction: {shown(direction)}")
    if nulls not in ("nulls-first", "nulls-last"):
        raise BadUpdate(f"Invalid null order: {shown(nulls)}")
    return {**raw, "direction": direction, "null-order": nulls}


def _transform(raw: Json) -> str:
    name = text(raw, "transform")
    if name.startswith(("bucket", "truncate")) and not _WIDTH.fullmatch(name):
        raise BadUpdate(f"Invalid transform: {shown(name)}")
    return name


def check_sources(fields: Sequence[Json], columns: Columns, kind: str) -> None:
    """Refuse a partition field or a sort field that can't be derived from its column."""
    for each in fields:
        name = each["transform"]
        if name == "void" and kind == "partition":
            continue
        column = columns.by_id.get(each["source-id"])
        if column is None:
            raise BadUpdate(f"Cannot find source column for {kind} field: {_described(each)}")
        if not column.primitive:
            raise BadUpdate(f"Cannot {kind} by non-primitive source field: {column.type}")
        base, taken = base_type(column.type), SOURCES.get(name.split("[")[0])
        if base in NEVER_SOURCES or (taken is not None and base not in taken):
            raise BadUpdate(f"Invalid source type {column.type} for transform: {shown(name)}")


def check_names(fields: Sequence[Json], columns: Columns) -> None:
    """Refuse a partition field that is there twice, or has the name of another column."""
    names, derived = set[str](), set[tuple[int, str]]()
    for each in fields:
        name, source = each["name"], (each["source-id"], each["transform"])
        if not name:
            raise BadUpdate("Cannot use empty partition name")
        if name in names:
            raise BadUpdate(f"Cannot use partition name more than once: {shown(name)}")
        if source in derived and each["transform"] != "void":
            raise BadUpdate(f"Cannot add redundant partition: {_described(each)}")
        if columns.by_name.get(name, each["source-id"]) != each["source-id"]:
            raise BadUpdate(f"Cannot create partition from name that exists in schema: {shown(name)}")
        names.add(name)
        derived.add(source)


def with_field_ids(fields: Sequence[Json], known: Sequence[Json], last: int) -> list[Json]:
    """Return partition fields with an id each: their own, that of an equal known field, or the next."""
    ids = {(each["source-id"], each["transform"]): each["field-id"] for each in known}
    found, taken = list[Json](), {each.get("field-id") for each in fields}
    for each in fields:
        number = each.get("field-id")
        if number is None:
            number = ids.get((each["source-id"], each["transform"]))
        if number is None or (each.get("field-id") is None and number in taken):
            number = last = max(last, *(each for each in taken if each is not None), FIRST_FIELD - 1) + 1
        taken.add(number)
        found.append({**each, "field-id": number})
    if len({each["field-id"] for each in found}) != len(found):
        raise BadUpdate("Invalid partition spec: two of its fields have the same id")
    return found


def check_ids(fields: Sequence[Json], known: Sequence[Json], version: int) -> None:
    """Refuse an id of a partition field that stands for something else in another spec."""
    if version == 1:
        if [each["field-id"] for each in fields] != list(range(FIRST_FIELD, FIRST_FIELD + len(fields))):
            raise BadUpdate("Spec does not use sequential IDs that are required in v1")
        return
    before = {each["field-id"]: each for each in known}
    for each in fields:
        other = before.get(each["field-id"])
        if other is None:
            continue
        transforms = {each["transform"], other["transform"]} - {"void"}
        if other["source-id"] != each["source-id"] or len(transforms) > 1:
            raise BadUpdate(f"Conflicting partition fields: {_described(each)}, {_described(other)}")


def same_fields(known: Json, fields: Sequence[Json], keys: Sequence[str]) -> bool:
    """Tell if a spec or a sort order has these fields."""
    before = [an_object(each, "field") for each in array(known, "fields")]
    return [[each.get(key) for key in keys] for each in before] == [[each.get(key) for key in keys] for each in fields]


def _described(each: Json) -> str:
    named = [str(each[key]) for key in ("field-id", "name") if each.get(key) is not None]
    return shown(": ".join([*named, f"{each['transform']}({each['source-id']})"]))[1:-1]
