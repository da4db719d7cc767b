"""
The next version of a table's metadata, while updates are applied to it.

Only what a commit changes is copied and checked, so that the cost does not grow with what the table has.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from txsaga.iceberg import partitioning
from txsaga.iceberg.columns import Columns
from txsaga.iceberg.json_fields import Json, an_object, array, field, integer, is_integer, long, shown
from txsaga.iceberg.refusals import BadUpdate

NEWEST, DEFAULT = 3, 2
"""The newest version of the format, and that of tables which ask for none."""

NONE, LAST = -1, -1
MAIN = "main"
KEEPING = "cut-"
"""How the names of tags begin whose snapshots are kept."""
MINUTE = 60_000
FORMAT_VERSION = "format-version"
KEPT_FILES = "write.metadata.previous-versions-max"


def blank(version: int = DEFAULT) -> Json:
    """Return the metadata of a table that has nothing yet, for a commit that creates it."""
    raw: Json = {FORMAT_VERSION: version, "last-updated-ms": 0, "last-column-id": 0, "current-schema-id": 0}
    raw |= {
        "schemas": [],
        "default-spec-id": 0,
        "partition-specs": [],
        "last-partition-id": partitioning.FIRST_FIELD - 1,
    }
    raw |= {"default-sort-order-id": 0, "sort-orders": [], "properties": {}}
    raw |= {"current-snapshot-id": NONE if version < 3 else None, "refs": {}, "snapshots": [], "statistics": []}
    raw |= {"partition-statistics": [], "snapshot-log": [], "metadata-log": []}
    return raw | of_version(raw)


def of_version(raw: Json) -> Json:
    """Return what a version of the format needs and does not have."""
    needed = {2: {"last-sequence-number": 0}, 3: {"last-sequence-number": 0, "next-row-id": 0}}.get(
        raw[FORMAT_VERSION], {}
    )
    return {key: value for key, value in needed.items() if raw.get(key) is None}


class TableDraft:
    """The next version of a table's metadata, while updates are applied to it."""

    def __init__(self, base: Json, moment: int, version: int = DEFAULT) -> None:
        self.base, self.moment = an_object(base, "table metadata"), moment
        self.raw: Json = completed(base) if base else blank(version)
        self.changed = False
        self.structure_changed = not base
        self.moved_to: int | None = None
        """When the newest snapshot of this commit was made; None if it has none."""
        self.last: dict[str, int] = {}
        """The schema, spec and sort order that this commit added last, by kind."""
        self.meant: dict[tuple[str, int], int] = {}
        """The id of what this commit added with an id of its own choice."""
        self.added: set[int] = set()
        self.led: set[int] = set()
        """The snapshots of this commit that main pointed at."""
        self.lost: set[str] = set()
        """Of `snapshots` and `schemas` what lost entries."""
        self._own: set[str] = set()

    @property
    def version(self) -> int:
        """The version of the format."""
        return integer(self.raw, FORMAT_VERSION)

    @property
    def current(self) -> int | None:
        """The id of the current snapshot."""
        known = self.raw.get("current-snapshot-id") not in (None, NONE)
        return long(self.raw, "current-snapshot-id") if known else None

    def rows(self, key: str) -> list[Json]:
        """Return a list of the metadata that may be changed."""
        if key not in self._own:
            self._own.add(key)
            self.raw[key] = (
                [an_object(each, key) for each in array(self.raw, key)] if self.raw.get(key) is not None else []
            )
        rows: list[Json] = self.raw[key]
        return rows

    def mapping(self, key: str) -> dict[str, Any]:
        """Return an object of the metadata that may be changed."""
        if key not in self._own:
            self._own.add(key)
            self.raw[key] = dict(an_object(self.raw[key], key)) if self.raw.get(key) is not None else {}
        values: dict[str, Any] = self.raw[key]
        return values

    @cached_property
    def snapshots(self) -> dict[int, Json]:
        """The snapshots by id."""
        return {long(each, "snapshot-id"): each for each in self.rows("snapshots")}

    def known(self, key: str, number_key: str) -> dict[int, Json]:
        """Return schemas, specs or sort orders by id."""
        return {integer(each, number_key): each for each in self.rows(key)}

    def columns(self) -> Columns:
        """Return the columns of the current schema."""
        number = self.raw.get("current-schema-id")
        schema = next((each for each in self.rows("schemas") if each.get("schema-id", 0) == number), None)
        if schema is None:
            raise BadUpdate(f"Cannot find the current schema: {shown(number)}")
        return Columns(schema, self.version)

    def chosen(self, kind: str, update: Json, key: str) -> int:
        """Return the id that an update means: -1 is what this commit added last."""
        number = integer(update, key)
        if number != LAST:
            return self.meant.get((kind, number), number)
        if kind not in self.last:
            raise BadUpdate(f"Cannot set last added {kind}: no {kind} has been added")
        return self.last[kind]

    def finished(self) -> Json:
        """Return the whole, checked."""
        raw = self.raw
        moment = self.moved_to if self.moved_to is not None else max(self.moment, moment_of(self.base))
        if self.structure_changed:
            _check_structure(self)
        if "schemas" in self.lost:
            _check_schemas_of_snapshots(self)
        if self.led - {self.current} or "snapshots" in self.lost:
            raw["snapshot-log"] = _corrected_log(self)
        _check_moment(raw, moment, moment_of(self.base))
        raw["last-updated-ms"] = moment
        return raw


def moment_of(base: Json) -> int:
    """Return when metadata was changed last."""
    return long(base, "last-updated-ms") if base.get("last-updated-ms") is not None else 0


def completed(base: Json) -> Json:
    """Return a copy of stored metadata with what version 1 may leave out."""
    raw = {**base}
    if not is_integer(raw.get(FORMAT_VERSION)) or not 1 <= raw[FORMAT_VERSION] <= NEWEST:
        raise BadUpdate(f"Unsupported format version: v{shown(raw.get(FORMAT_VERSION))} (supported: v{NEWEST})")
    if raw.get("schemas") is None:
        schema = {"schema-id": 0, **an_object(field(raw, "schema"), "schema")}
        raw |= {"schemas": [schema], "current-schema-id": schema["schema-id"]}
    if raw.get("partition-specs") is None:
        raw |= {"partition-specs": [{"spec-id": 0, "fields": raw.get("partition-spec") or []}], "default-spec-id": 0}
    if raw[FORMAT_VERSION] == 1:
        raw["partition-specs"] = [_numbered(an_object(each, "spec")) for each in array(raw, "partition-specs")]
    if raw.get("sort-orders") is None:
        raw |= {"sort-orders": [{"order-id": 0, "fields": []}], "default-sort-order-id": 0}
    if raw.get("last-partition-id") is None:
        ids = [each["field-id"] for each in all_fields(array(raw, "partition-specs"))]
        raw["last-partition-id"] = max(ids, default=partitioning.FIRST_FIELD - 1)
    if raw.get("refs") is None and raw.get("current-snapshot-id") not in (None, NONE):
        raw["refs"] = {MAIN: {"type": "branch", "snapshot-id": raw["current-snapshot-id"]}}
    return raw | of_version(raw)


def _numbered(spec: Json) -> Json:
    """Return a spec with the ids of its fields, which old files of version 1 leave out."""
    fields = [an_object(each, "partition field") for each in array(spec, "fields")]
    return {**spec, "fields": [{"field-id": partitioning.FIRST_FIELD + at, **each} for at, each in enumerate(fields)]}


def all_fields(specs: Sequence[Json]) -> list[Json]:
    """Return the fields of all partition specs."""
    fields = [each for spec in specs for each in partitioning.read_fields(an_object(spec, "spec"))]
    for each in fields:
        integer(each, "field-id")
    return fields


def _check_structure(draft: TableDraft) -> None:
    """Refuse a schema, spec or sort order that is missing, or does not fit the current schema."""
    raw, columns = draft.raw, draft.columns()
    for key in ("location", "table-uuid"):
        if not raw.get(key) and (draft.version > 1 or key == "location"):
            raise BadUpdate(f"Invalid table metadata: {key} is missing")
    specs, orders = draft.known("partition-specs", "spec-id"), draft.known("sort-orders", "order-id")
    spec, order = specs.get(integer(raw, "default-spec-id")), orders.get(integer(raw, "default-sort-order-id"))
    if spec is None:
        raise BadUpdate(f"Cannot set default partition spec to unknown spec: {raw['default-spec-id']}")
    if order is None:
        raise BadUpdate(f"Cannot set default sort order to unknown order: {raw['default-sort-order-id']}")
    partitioning.check_sources(partitioning.read_fields(spec), columns, "partition")
    partitioning.check_sources(partitioning.read_order(order), columns, "sort")
    if draft.version == 1:
        raw["schema"] = draft.known("schemas", "schema-id")[raw["current-schema-id"]]
        raw["partition-spec"] = spec["fields"]
    else:
        raw.pop("schema", None)
        raw.pop("partition-spec", None)


def _check_schemas_of_snapshots(draft: TableDraft) -> None:
    """Refuse to lose the schema of a snapshot that stays: nobody could read it."""
    before = {integer(an_object(each, "schema"), "schema-id") for each in draft.base.get("schemas") or ()}
    gone = before - set(draft.known("schemas", "schema-id"))
    for number, snapshot in draft.snapshots.items():
        if (schema := snapshot.get("schema-id")) is not None and integer(snapshot, "schema-id") in gone:
            raise BadUpdate(f"Cannot remove schema {schema}: snapshot {number} was written with it")


def _corrected_log(draft: TableDraft) -> list[Json]:
    """Return the history of main without what was never current, and without what is before a gap."""
    kept, passed = list[Json](), draft.led - {draft.current}
    for each in draft.rows("snapshot-log"):
        number = long(each, "snapshot-id")
        if number not in draft.snapshots:
            kept = [] if "snapshots" in draft.lost else kept
        elif number not in passed:
            kept.append(each)
    if draft.current is not None and kept and kept[-1]["snapshot-id"] != draft.current:
        raise BadUpdate("Cannot set invalid snapshot log: latest entry is not the current snapshot")
    return kept


def count_of(key: str, said: object) -> int:
    """Return a property that must be an integer."""
    try:
        number = int(said) if isinstance(said, str) else None
    except ValueError:
        number = None
    if not is_integer(number):
        raise BadUpdate(f"Table property {key} must be an integer, not {shown(said)}")
    assert number is not None
    return number


def _check_moment(raw: Json, moment: int, before: int) -> None:
    """Refuse a time that is more than a minute, for clocks that differ, before an earlier change."""
    previous = "the latest metadata log entry timestamp"
    for key, named in (("snapshot-log", "last snapshot log entry at"), ("metadata-log", previous)):
        entries = array(raw, key) if raw.get(key) is not None else ()
        last = long(an_object(entries[-1], key), "timestamp-ms") if entries else before
        if moment - last < -MINUTE:
            raise BadUpdate(f"Invalid update timestamp {moment}: before {named} {last}")
    if moment - before < -MINUTE:
        raise BadUpdate(f"Invalid update timestamp {moment}: before {previous} {before}")
