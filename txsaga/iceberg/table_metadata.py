"""
A table's metadata as plain JSON: the first version of it, and each version that a commit makes of another.

Nothing is read or written here, arguments are never changed, and fields that this version of Iceberg does not know are
kept. Only what a commit changes is copied and checked, so that the cost does not grow with what the table has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from txsaga.iceberg import partitioning
from txsaga.iceberg.columns import Columns, numbered_anew, reused, same_schema
from txsaga.iceberg.json_fields import (
    INT,
    LONG,
    Json,
    an_object,
    array,
    field,
    integer,
    is_integer,
    long,
    shown,
    string_map,
    strings,
    text,
)
from txsaga.iceberg.refusals import BadUpdate, RequirementFailed
from txsaga.iceberg.table_draft import (
    DEFAULT,
    FORMAT_VERSION,
    KEEPING,
    KEPT_FILES,
    MAIN,
    NEWEST,
    NONE,
    TableDraft,
    all_fields,
    completed,
    count_of,
    moment_of,
    of_version,
)

RESERVED = {
    *(FORMAT_VERSION, "uuid", "snapshot-count", "current-snapshot-summary", "current-snapshot-id"),
    *("current-snapshot-timestamp-ms", "current-schema", "default-partition-spec", "default-sort-order"),
}
"""Names of properties that say what the metadata says elsewhere."""

NOT_NEGATIVE = {f"commit.retry.{each}" for each in ("num-retries", "min-wait-ms", "max-wait-ms", "total-timeout-ms")}
METRICS = "write.metadata.metrics.column."
OPERATIONS = {"append", "replace", "overwrite", "delete"}
SPEC_KEYS = ("source-id", "transform", "name")
ORDER_KEYS = ("source-id", "transform", "direction", "null-order")


def new_table(request: Json, location: str, *, uuid: str, moment: int) -> Json:
    """Return the first metadata of a table, with ids of its own for columns, partition fields and sort order."""
    an_object(request, "create table request")
    properties = dict(string_map(request, "properties")) if request.get("properties") is not None else {}
    version = _version(properties.get(FORMAT_VERSION, str(DEFAULT)))
    given = an_object(field(request, "schema"), "schema")
    columns = Columns(given, version)
    _check_properties(properties, columns)
    schema, numbers = numbered_anew(given)
    draft = TableDraft({}, moment, version)
    draft.raw |= {"table-uuid": uuid, "schemas": [schema], "last-column-id": len(numbers)}
    _set_location(draft, {"location": location})
    draft.raw["properties"] = {"write.parquet.compression-codec": "zstd", **_not_reserved(properties)}
    for key, place, action in (("partition-spec", "spec", _add_spec), ("write-order", "sort-order", _add_sort_order)):
        raw = an_object(request[key], key) if request.get(key) is not None else {"fields": []}
        action(draft, {place: _moved(raw, columns, numbers, place)})
    draft.raw["default-sort-order-id"] = draft.raw["sort-orders"][0]["order-id"]
    return draft.finished()


def _moved(raw: Json, columns: Columns, numbers: Mapping[int, int], place: str) -> Json:
    """Return a spec or sort order with the new ids of its columns, and without ids of its own."""
    fields = partitioning.read_fields(raw) if place == "spec" else partitioning.read_order(raw)
    partitioning.check_sources(fields, columns, "partition" if place == "spec" else "sort")
    if unknown := [each["source-id"] for each in fields if each["source-id"] not in numbers]:
        raise BadUpdate(f"Cannot find source column for partition field: {unknown[0]}")
    moved = [{**each, "source-id": numbers[each["source-id"]]} for each in fields]
    kept = {key: value for key, value in raw.items() if key not in ("spec-id", "order-id")}
    return {**kept, "fields": [{key: value for key, value in each.items() if key != "field-id"} for each in moved]}


def _version(said: str) -> int:
    if said not in ("1", "2", "3"):
        raise BadUpdate(f"Unsupported format version: v{shown(said)[1:-1]} (supported: v{NEWEST})")
    return int(said)


def _not_reserved(properties: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in properties.items() if key not in RESERVED}


def _check_properties(properties: Mapping[str, str], columns: Columns) -> None:
    """Refuse what would make every later commit of the table fail."""
    for key, value in properties.items():
        if key == KEPT_FILES:
            count_of(key, value)
        if key in NOT_NEGATIVE and not (value.isascii() and value.isdigit()):
            raise BadUpdate(f"Table property {key} must have non negative integer value, not {shown(value)}")
        if key.startswith(METRICS) and key.removeprefix(METRICS) not in columns.by_name:
            column = shown(key.removeprefix(METRICS))
            raise BadUpdate(
                f"Invalid metrics config, could not find column {column} from table prop {shown(key)} in schema"
            )


def _assign_uuid(draft: TableDraft, update: Json) -> None:
    said, known = text(update, "uuid"), draft.raw.get("table-uuid")
    if isinstance(known, str) and said.lower() == known.lower():
        return
    if draft.base and known is not None:
        raise BadUpdate(f"Cannot change the uuid of a table: {shown(known)} to {shown(said)}")
    try:
        draft.raw["table-uuid"] = str(UUID(said))
    except ValueError:
        raise BadUpdate(f"Invalid uuid: {shown(said)}") from None
    draft.changed = True


def _upgrade(draft: TableDraft, update: Json) -> None:
    version = integer(update, FORMAT_VERSION)
    if version > NEWEST:
        raise BadUpdate(f"Cannot upgrade table to unsupported format version: v{version} (supported: v{NEWEST})")
    if version < draft.version:
        raise BadUpdate(f"Cannot downgrade v{draft.version} table to v{version}")
    if version > draft.version:
        draft.raw[FORMAT_VERSION] = version
        draft.raw |= of_version(draft.raw)
        draft.changed = draft.structure_changed = True


def _add_schema(draft: TableDraft, update: Json) -> None:
    schema = an_object(field(update, "schema"), "schema")
    columns, known = Columns(schema, draft.version), draft.known("schemas", "schema-id")
    said = integer(schema, "schema-id") if schema.get("schema-id") is not None else None
    found = next((number for number, each in known.items() if same_schema(each, schema)), None)
    if found is None:
        if draft.current is not None:
            _check_reuse(draft, columns, known)
        found = max([integer(draft.raw, "current-schema-id") - 1, *known]) + 1
        draft.rows("schemas").append({**schema, "type": "struct", "schema-id": _small(found)})
        draft.raw["last-column-id"] = max(integer(draft.raw, "last-column-id"), columns.highest)
        draft.changed = draft.structure_changed = True
    draft.last["schema"] = found
    if said is not None:
        draft.meant["schema", said] = found


def _check_reuse(draft: TableDraft, columns: Columns, known: Mapping[int, Json]) -> None:
    current = draft.columns()
    older, last = (Columns(each, draft.version) for each in known.values()), integer(draft.raw, "last-column-id")
    if (wrong := reused(columns, current, older, last, draft.version)) is not None:
        raise BadUpdate(
            f"Cannot add schema: column {shown(wrong.name)} has id {wrong.id}, which had another type than {wrong.type}"
        )


def _small(number: int) -> int:
    if number >= INT:
        raise BadUpdate(f"Cannot give an id: {number} is too large")
    return number


def _set_current_schema(draft: TableDraft, update: Json) -> None:
    number = draft.chosen("schema", update, "schema-id")
    if number == draft.raw.get("current-schema-id"):
        return
    if number not in draft.known("schemas", "schema-id"):
        raise BadUpdate(f"Cannot set current schema to unknown schema: {number}")
    draft.raw["current-schema-id"] = number
    draft.changed = draft.structure_changed = True


def _add_spec(draft: TableDraft, update: Json) -> None:
    raw, version = an_object(field(update, "spec"), "spec"), draft.version
    fields, known = partitioning.read_fields(raw), draft.known("partition-specs", "spec-id")
    said = integer(raw, "spec-id") if raw.get("spec-id") is not None else None
    same = (number for number, each in known.items() if partitioning.same_fields(each, fields, SPEC_KEYS))
    if (found := next(same, None)) is None:
        if said in known:
            raise BadUpdate(f"Cannot add partition spec: spec {said} already exists with other fields")
        columns, others = draft.columns(), all_fields(draft.rows("partition-specs"))
        partitioning.check_sources(fields, columns, "partition")
        partitioning.check_names(fields, columns)
        last = integer(draft.raw, "last-partition-id")
        numbered = (fields, others, last) if version > 1 else (fields, (), partitioning.FIRST_FIELD - 1)
        fields = partitioning.with_field_ids(*numbered)
        partitioning.check_ids(fields, others, version)
        found = said if said is not None and said >= 0 else _small(max(known, default=-1) + 1)
        draft.rows("partition-specs").append({**raw, "spec-id": found, "fields": fields})
        draft.raw["last-partition-id"] = max([draft.raw["last-partition-id"], *(each["field-id"] for each in fields)])
        draft.changed = draft.structure_changed = True
    draft.last["spec"] = found
    if said is not None:
        draft.meant["spec", said] = found


def _set_default_spec(draft: TableDraft, update: Json) -> None:
    _set_default(draft, draft.chosen("spec", update, "spec-id"), "default-spec-id")


def _add_sort_order(draft: TableDraft, update: Json) -> None:
    raw = an_object(field(update, "sort-order"), "sort order")
    fields, known = partitioning.read_order(raw), draft.known("sort-orders", "order-id")
    said = integer(raw, "order-id") if raw.get("order-id") is not None else None
    same = (number for number, each in known.items() if partitioning.same_fields(each, fields, ORDER_KEYS))
    if (found := next(same, None)) is None:
        partitioning.check_sources(fields, draft.columns(), "sort")
        found = _small(max([0, *known]) + 1) if fields else 0
        draft.rows("sort-orders").append({**raw, "order-id": found, "fields": fields})
        draft.changed = draft.structure_changed = True
    draft.last["sort order"] = found
    if said is not None:
        draft.meant["sort order", said] = found


def _set_default_sort_order(draft: TableDraft, update: Json) -> None:
    _set_default(draft, draft.chosen("sort order", update, "sort-order-id"), "default-sort-order-id")


def _set_default(draft: TableDraft, number: int, key: str) -> None:
    if number != draft.raw.get(key):
        draft.raw[key] = number
        draft.changed = draft.structure_changed = True


def _add_snapshot(draft: TableDraft, update: Json) -> None:
    snapshot = dict(an_object(field(update, "snapshot"), "snapshot"))
    for key, named in (("schemas", "schema"), ("partition-specs", "partition spec"), ("sort-orders", "sort order")):
        if not draft.rows(key):
            raise BadUpdate(f"Attempting to add a snapshot before a {named} is added")
    number = long(snapshot, "snapshot-id")
    if number in draft.snapshots or number in {each["snapshot-id"] for each in draft.base.get("snapshots") or ()}:
        raise BadUpdate(f"Snapshot already exists for id: {number}")  # one that goes in this commit, too
    if any(each.get("parent-snapshot-id") == number for each in draft.rows("snapshots")):
        raise BadUpdate(f"Invalid snapshot {number}: it is the parent of one that was added before")
    _check_snapshot(draft, snapshot, number)
    sequence = _sequence(draft, snapshot)
    if draft.version > 1:
        draft.raw["last-sequence-number"] = sequence
    if draft.version > 2:
        draft.raw["next-row-id"] = _next_row(draft, snapshot)
    draft.moved_to = snapshot["timestamp-ms"]
    draft.rows("snapshots").append(snapshot)
    draft.snapshots[number] = snapshot
    draft.added.add(number)
    draft.changed = True


def _check_snapshot(draft: TableDraft, snapshot: Json, number: int) -> None:
    """Refuse a snapshot that a reader could not read."""
    if number < 0 or long(snapshot, "timestamp-ms") < 0:
        raise BadUpdate(f"Invalid snapshot {number}: its id and its timestamp must not be negative")
    if snapshot.get("parent-snapshot-id") is not None and long(snapshot, "parent-snapshot-id") == number:
        raise BadUpdate(f"Invalid snapshot {number}: it can't be its own parent")
    if draft.version > 1 or snapshot.get("manifests") is None:
        if not text(snapshot, "manifest-list"):
            raise BadUpdate(f"Invalid snapshot {number}: manifest-list is empty")
    else:
        strings(snapshot, "manifests")
    if snapshot.get("summary") is not None:
        operation = string_map(snapshot, "summary").get("operation", "overwrite")
        if operation not in OPERATIONS:
            raise BadUpdate(f"Invalid snapshot {number}: unknown operation {shown(operation)}")
    if snapshot.get("schema-id") is not None:
        schema = draft.meant.get(("schema", said := integer(snapshot, "schema-id")), said)
        if schema not in draft.known("schemas", "schema-id"):
            raise BadUpdate(f"Cannot add snapshot {number} of unknown schema: {said}")
        snapshot["schema-id"] = schema


def _sequence(draft: TableDraft, snapshot: Json) -> int:
    """Return the sequence number of a snapshot, which must be above the last, or not below it without a parent."""
    sequence = long(snapshot, "sequence-number") if snapshot.get("sequence-number") is not None else 0
    if draft.version == 1:
        if sequence != 0:
            raise BadUpdate(f"Sequence number must be 0 in v1: {sequence}")
        return 0
    if sequence < 1:
        raise BadUpdate(f"Invalid sequence number of a snapshot: {sequence}")
    last = long(draft.raw, "last-sequence-number")
    if sequence < last or (sequence == last and snapshot.get("parent-snapshot-id") is not None):
        raise RequirementFailed(
            f"Cannot add snapshot with sequence number {sequence} older than last sequence number {last}"
        )
    return sequence


def _next_row(draft: TableDraft, snapshot: Json) -> int:
    """Return the next id of a row after a snapshot."""
    if snapshot.get("first-row-id") is None:
        raise BadUpdate("Cannot add a snapshot: first-row-id is null")
    first, added, behind = long(snapshot, "first-row-id"), long(snapshot, "added-rows"), long(draft.raw, "next-row-id")
    if added < 0 or first + added >= LONG:
        raise BadUpdate(f"Invalid added-rows: {added}")
    if first < behind:
        raise RequirementFailed(f"Cannot add a snapshot, first-row-id is behind table next-row-id: {first} < {behind}")
    return first + added


def _set_ref(draft: TableDraft, update: Json) -> None:
    name, ref = text(update, "ref-name"), _read_ref(update)
    number, refs = ref["snapshot-id"], draft.mapping("refs")
    if refs.get(name) == ref:
        return
    if number not in draft.snapshots:
        raise BadUpdate(f"Cannot set {shown(name)[1:-1]} to unknown snapshot: {number}")
    if name == MAIN and ref["type"] != "branch":
        raise BadUpdate("Cannot set main: it must be a branch")
    if number in draft.added:
        draft.moved_to = draft.snapshots[number]["timestamp-ms"]
        draft.led |= {number} if name == MAIN else set()
    if name == MAIN:
        draft.raw["current-snapshot-id"] = number
        if draft.moved_to is None:
            draft.moved_to = max(draft.moment, moment_of(draft.base))
        draft.rows("snapshot-log").append({"timestamp-ms": draft.moved_to, "snapshot-id": number})
    refs[name] = ref
    draft.changed = True


def _read_ref(update: Json) -> Json:
    ref: Json = {"snapshot-id": long(update, "snapshot-id"), "type": text(update, "type").lower()}
    if ref["type"] not in ("branch", "tag"):
        raise BadUpdate(f"Invalid snapshot reference type: {shown(update['type'])}")
    for key in ("min-snapshots-to-keep", "max-snapshot-age-ms", "max-ref-age-ms"):
        if update.get(key) is None:
            continue
        ref[key] = integer(update, key) if key.startswith("min") else long(update, key)
        if ref[key] <= 0:
            raise BadUpdate(f"Invalid snapshot reference: {key} must be greater than 0")
        if ref["type"] == "tag" and key != "max-ref-age-ms":
            raise BadUpdate(f"Tags do not support setting {key}")
    return ref


def _remove_ref(draft: TableDraft, update: Json) -> None:
    name = text(update, "ref-name")
    if draft.mapping("refs").pop(name, None) is not None:
        draft.changed = True
        if name == MAIN:
            draft.raw["current-snapshot-id"] = NONE if draft.version < 3 else None


def _remove_snapshots(draft: TableDraft, update: Json) -> None:
    gone = _longs(update, "snapshot-ids", LONG) & set(draft.snapshots)
    if not gone:
        return
    for name, ref in draft.mapping("refs").items():
        if name.startswith(KEEPING) and ref.get("snapshot-id") in gone:
            raise BadUpdate(f"Snapshot {ref['snapshot-id']} is kept by tag {name}")
    draft.raw["snapshots"] = [each for each in draft.rows("snapshots") if each["snapshot-id"] not in gone]
    for number in gone:
        del draft.snapshots[number]
    for key in ("statistics", "partition-statistics"):
        if draft.rows(key):
            draft.raw[key] = [each for each in draft.rows(key) if long(each, "snapshot-id") not in gone]
    for name in [
        name for name, ref in draft.mapping("refs").items() if long(an_object(ref, name), "snapshot-id") in gone
    ]:
        _remove_ref(draft, {"ref-name": name})
    draft.changed = True
    draft.lost.add("snapshots")


def _longs(update: Json, key: str, limit: int) -> set[int]:
    for each in array(update, key):
        if not is_integer(each, limit):
            raise BadUpdate(f"Cannot parse long from non-long value in {key}: {shown(each)}")
    return set(array(update, key))


def _set_location(draft: TableDraft, update: Json) -> None:
    location = text(update, "location").rstrip("/")
    if not location:
        raise BadUpdate("Invalid location: it is empty")
    if location != draft.raw.get("location"):
        draft.raw["location"] = location
        draft.changed = True


def _set_properties(draft: TableDraft, update: Json) -> None:
    said = string_map(update, "updated" if "updated" in update else "updates")
    if FORMAT_VERSION in said:
        _upgrade(draft, {FORMAT_VERSION: count_of(FORMAT_VERSION, said[FORMAT_VERSION])})
    if KEPT_FILES in said:
        count_of(KEPT_FILES, said[KEPT_FILES])
    if kept := _not_reserved(said):
        draft.mapping("properties").update(kept)
        draft.changed = True


def _remove_properties(draft: TableDraft, update: Json) -> None:
    for key in strings(update, "removed" if "removed" in update else "removals"):
        draft.mapping("properties").pop(key, None)
        draft.changed = True


def _set_statistics(draft: TableDraft, update: Json) -> None:
    raw = an_object(field(update, "statistics"), "statistics file")
    long(raw, "file-footer-size-in-bytes")
    for each in array(raw, "blob-metadata"):
        blob = an_object(each, "blob metadata")
        text(blob, "type"), long(blob, "snapshot-id"), long(blob, "sequence-number")
        _longs(blob, "fields", INT)
        if blob.get("properties") is not None:
            string_map(blob, "properties")
    _replace_statistics(draft, raw, "statistics")


def _set_partition_statistics(draft: TableDraft, update: Json) -> None:
    raw = an_object(field(update, "partition-statistics"), "partition statistics file")
    _replace_statistics(draft, raw, "partition-statistics")


def _replace_statistics(draft: TableDraft, raw: Json, key: str) -> None:
    number = long(raw, "snapshot-id")
    text(raw, "statistics-path"), long(raw, "file-size-in-bytes")
    draft.raw[key] = [*(each for each in draft.rows(key) if each.get("snapshot-id") != number), raw]
    draft.changed = True


def _remove_statistics(draft: TableDraft, update: Json) -> None:
    _drop(draft, "statistics", "snapshot-id", {long(update, "snapshot-id")})


def _remove_partition_statistics(draft: TableDraft, update: Json) -> None:
    _drop(draft, "partition-statistics", "snapshot-id", {long(update, "snapshot-id")})


def _drop(draft: TableDraft, key: str, number_key: str, gone: set[Any]) -> None:
    """Remove entries of a list; nothing changes if there are none."""
    read = text if number_key == "key-id" else long
    kept = [each for each in draft.rows(key) if read(each, number_key) not in gone]
    if len(kept) < len(draft.rows(key)):
        draft.raw[key] = kept
        draft.changed = True


def _remove_specs(draft: TableDraft, update: Json) -> None:
    gone = _longs(update, "spec-ids", INT)
    if integer(draft.raw, "default-spec-id") in gone:
        raise BadUpdate("Cannot remove the default partition spec")
    _drop(draft, "partition-specs", "spec-id", gone)


def _remove_schemas(draft: TableDraft, update: Json) -> None:
    gone = _longs(update, "schema-ids", INT)
    if integer(draft.raw, "current-schema-id") in gone:
        raise BadUpdate("Cannot remove the current schema")
    _drop(draft, "schemas", "schema-id", gone)
    draft.lost.add("schemas")


def _add_key(draft: TableDraft, update: Json) -> None:
    raw = an_object(field(update, "encryption-key"), "encryption key")
    number = text(raw, "key-id")
    text(raw, "encrypted-key-metadata")
    if raw.get("encrypted-by-id") is not None:
        text(raw, "encrypted-by-id")
    if raw.get("properties") is not None:
        string_map(raw, "properties")
    if all(each.get("key-id") != number for each in draft.rows("encryption-keys")):
        draft.rows("encryption-keys").append(raw)
        draft.changed = True


def _remove_key(draft: TableDraft, update: Json) -> None:
    _drop(draft, "encryption-keys", "key-id", {text(update, "key-id")})


ACTIONS: Mapping[str, Callable[[TableDraft, Json], None]] = {
    "assign-uuid": _assign_uuid,
    "upgrade-format-version": _upgrade,
    "add-schema": _add_schema,
    "set-current-schema": _set_current_schema,
    "add-spec": _add_spec,
    "set-default-spec": _set_default_spec,
    "add-sort-order": _add_sort_order,
    "set-default-sort-order": _set_default_sort_order,
    "add-snapshot": _add_snapshot,
    "set-snapshot-ref": _set_ref,
    "remove-snapshots": _remove_snapshots,
    "remove-snapshot-ref": _remove_ref,
    "set-location": _set_location,
    "set-properties": _set_properties,
    "remove-properties": _remove_properties,
    "set-statistics": _set_statistics,
    "remove-statistics": _remove_statistics,
    "set-partition-statistics": _set_partition_statistics,
    "remove-partition-statistics": _remove_partition_statistics,
    "remove-partition-specs": _remove_specs,
    "remove-schemas": _remove_schemas,
    "add-encryption-key": _add_key,
    "remove-encryption-key": _remove_key,
}
"""How each update of the REST protocol changes a draft."""


def updated(raw: Json, updates: Sequence[Json], *, moment: int) -> Json:
    """Return the metadata after a commit's updates: the same object if they change nothing, a new table from {}."""
    if not isinstance(updates, list | tuple):
        raise BadUpdate("Cannot parse metadata updates from a non-array")
    draft = TableDraft(raw, moment, DEFAULT if raw else _first_version(updates))
    for update in updates:
        action = text(an_object(update, "metadata update"), "action").lower()
        if action not in ACTIONS:
            raise BadUpdate(f"Cannot apply metadata update to a table: {shown(action)}")
        ACTIONS[action](draft, update)
    if not raw and draft.raw.get("table-uuid") is None:
        draft.raw["table-uuid"] = str(uuid4())
    return draft.finished() if draft.changed or not raw else raw


def _first_version(updates: Sequence[Json]) -> int:
    """Return the version of a table that a commit creates: what its first upgrade says."""
    for update in updates:
        if isinstance(update, dict) and str(update.get("action")).lower() == "upgrade-format-version":
            return _version(str(integer(update, FORMAT_VERSION)))
    return DEFAULT


REQUIRED_IDS: Mapping[str, tuple[str, str, str]] = {
    "assert-last-assigned-field-id": ("last-assigned-field-id", "last-column-id", "last assigned field id"),
    "assert-current-schema-id": ("current-schema-id", "current-schema-id", "current schema"),
    "assert-last-assigned-partition-id": (
        "last-assigned-partition-id",
        "last-partition-id",
        "last assigned partition id",
    ),
    "assert-default-spec-id": ("default-spec-id", "default-spec-id", "default partition spec"),
    "assert-default-sort-order-id": ("default-sort-order-id", "default-sort-order-id", "default sort order"),
}
"""Requirements of an id: their field, that of the metadata, and its name in the error."""


def require(raw: Json | None, requirements: Sequence[Json]) -> None:
    """Refuse a commit whose table is not as it requires; None is a table that does not exist."""
    if not isinstance(requirements, list | tuple):
        raise BadUpdate("Cannot parse update requirements from a non-array")
    for requirement in requirements:
        kind = text(an_object(requirement, "update requirement"), "type").lower()
        if kind == "assert-create":
            _hold(raw is None, "table already exists")
        elif kind == "assert-table-uuid":
            _require_uuid(raw, text(requirement, "uuid"))
        elif kind == "assert-ref-snapshot-id":
            _require_ref(raw, requirement)
        elif kind == "assert-property":  # of the server: what a commit was judged by
            known = {} if raw is None else raw.get("properties") or {}
            key = text(requirement, "key")
            _hold(known.get(key) == requirement.get("value"), f"property {key} has changed")
        elif kind in REQUIRED_IDS:
            _require_id(raw, requirement, *REQUIRED_IDS[kind])
        else:
            raise BadUpdate(f"Cannot validate {shown(kind)} against a table")


def _hold(holds: bool, why: str) -> None:
    if not holds:
        raise RequirementFailed(f"Requirement failed: {why}")


def _require_uuid(raw: Json | None, uuid: str) -> None:
    known = None if raw is None else raw.get("table-uuid")
    same = isinstance(known, str) and uuid.lower() == known.lower()
    _hold(same, f"UUID does not match: expected {known} != {shown(uuid)[1:-1]}")


def _require_ref(raw: Json | None, requirement: Json) -> None:
    name = text(requirement, "ref")
    number = None if requirement.get("snapshot-id") is None else long(requirement, "snapshot-id")
    refs = {} if raw is None else an_object(completed(raw).get("refs") or {}, "refs")
    ref, named = refs.get(name), shown(name)[1:-1]
    if ref is None:
        _hold(number is None, f"branch or tag {named} is missing, expected {number}")
        return
    kind, found = an_object(ref, name).get("type"), ref.get("snapshot-id")
    _hold(number is not None, f"{kind} {named} was created concurrently")
    _hold(number == found, f"{kind} {named} has changed: expected id {number} != {found}")


def _require_id(raw: Json | None, requirement: Json, key: str, known_key: str, named: str) -> None:
    number = integer(requirement, key)
    if raw is None:
        _hold(key.startswith("last"), "table does not exist")
        return
    found = completed(raw).get(known_key)
    _hold(number == found, f"{named} changed: expected id {number} != {found}")
