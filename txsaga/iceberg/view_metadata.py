"""
The metadata of a view in its JSON form: its first, and what updates make of it.

It follows Iceberg's view specification, version 1, and decides like the builder of its Java library. What it does not
know stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from txsaga.iceberg.columns import Columns, same_schema
from txsaga.iceberg.json_fields import (
    INT,
    Json,
    an_object,
    array,
    escaped,
    field,
    integer,
    long,
    optional_text,
    shown,
    string_map,
    strings,
    text,
)
from txsaga.iceberg.refusals import BadUpdate, RequirementFailed
from txsaga.iceberg.table_draft import NEWEST

LAST_ADDED = -1
DIALECT_MAY_GO = "replace.drop-dialect.allowed"
HISTORY = "version.history.num-entries"


def new_view(request: Json, location: str, *, uuid: str, moment: int) -> Json:
    """Return the first metadata of a view; `location` holds where the request names none."""
    an_object(request, "create view request")
    text(request, "name")
    version = _read_version(field(request, "view-version"))
    if not version["representations"]:
        raise BadUpdate("Cannot create view without specifying a query")
    started = _ViewDraft(_empty(uuid, optional_text(request, "location") or location), moment)
    if request.get("properties") is not None:
        started.set_properties({"updates": request["properties"]})
    started.add_schema({"schema": field(request, "schema")})
    started.add_version({"view-version": {**version, "version-id": 1, "schema-id": LAST_ADDED, "timestamp-ms": moment}})
    started.set_current_version({"view-version-id": LAST_ADDED})
    return started.metadata()


def _empty(uuid: str, location: str) -> Json:
    lists: Json = {"schemas": [], "current-version-id": 0, "versions": [], "version-log": []}
    return {"view-uuid": uuid, "format-version": 1, "location": location, **lists, "properties": {}}


def updated(raw: Json, updates: Sequence[Json], *, moment: int) -> Json:
    """Return what updates make of a view's metadata; it is equal where they change nothing."""
    draft = _ViewDraft(_read_view(raw), moment)
    if not isinstance(updates, list | tuple):
        raise BadUpdate(f"Cannot parse JSON array from non-array value: updates: {shown(updates)}")
    for update in updates:
        draft.apply(update)
    return draft.metadata(replaced=raw)


def require(raw: Json | None, requirements: Sequence[Json]) -> None:
    """Refuse if a view is not as the client requires."""
    if not isinstance(requirements, list | tuple):
        raise BadUpdate(f"Cannot parse JSON array from non-array value: requirements: {shown(requirements)}")
    for requirement in requirements:
        kind = text(an_object(requirement, "update requirement"), "type")
        if kind != "assert-view-uuid":
            raise BadUpdate(f"Cannot validate {escaped(kind)} against a view")
        _require_uuid(raw, text(requirement, "uuid"))


def _require_uuid(raw: Json | None, required: str) -> None:
    if raw is None:
        raise RequirementFailed(
            f"Requirement failed: view UUID does not match: expected no view != {escaped(required)}"
        )
    uuid = text(an_object(raw, "view metadata"), "view-uuid")
    if required.lower() != uuid.lower():
        raise RequirementFailed(
            f"Requirement failed: view UUID does not match: expected {escaped(uuid)} != {escaped(required)}"
        )


class _ViewDraft:
    """A view's metadata while updates are applied; what it was made from stays as it is."""

    def __init__(self, raw: Json, moment: int) -> None:
        self._raw = {**raw}
        self._moment = moment
        self._schemas = list(raw["schemas"])
        self._versions = list(raw["versions"])
        self._log_entry: Json | None = None
        self._added: set[int] = set()
        self._last_schema: int | None = None
        self._last_version: int | None = None

    def apply(self, update: object) -> None:
        """Apply one update."""
        raw = an_object(update, "metadata update")
        action = text(raw, "action")
        if action not in ACTIONS:
            raise BadUpdate(f"Cannot apply update {escaped(action)} to a view")
        ACTIONS[action](self, raw)

    def assign_uuid(self, update: Json) -> None:
        """Keep the UUID: it is assigned once."""
        if text(update, "uuid") != self._raw["view-uuid"]:
            raise BadUpdate("Cannot reassign uuid")

    def upgrade_format(self, update: Json) -> None:
        """Keep the version of the format: there is one so far."""
        now, wanted = self._raw["format-version"], integer(update, "format-version")
        if wanted < now:
            raise BadUpdate(f"Cannot downgrade v{now} view to v{wanted}")
        _check_format(wanted)

    def set_location(self, update: Json) -> None:
        """Move the view's base location."""
        self._raw["location"] = text(update, "location")

    def set_properties(self, update: Json) -> None:
        """Set properties, others stay."""
        properties = string_map(update, "updates")
        if properties:
            self._raw["properties"] = {**self._properties, **properties}

    def remove_properties(self, update: Json) -> None:
        """Remove properties, whether they are there or not."""
        removed = set(strings(update, "removals"))
        if not removed.isdisjoint(self._properties):
            self._raw["properties"] = {key: value for key, value in self._properties.items() if key not in removed}

    @property
    def _properties(self) -> Mapping[str, str]:
        properties: Mapping[str, str] = self._raw.get("properties", {})
        return properties

    def add_schema(self, update: Json) -> None:
        """Add a schema under the next id, unless there is the same one."""
        added = _read_schema(field(update, "schema"))
        same = [each for each in self._schemas if same_schema(each, added)]
        if same:
            self._last_schema = _schema_id(same[0])
            return
        self._last_schema = _next(map(_schema_id, self._schemas))
        self._schemas.append({**added, "schema-id": self._last_schema})

    def add_version(self, update: Json) -> None:
        """Add a version under its id or the next, unless there is one that does the same."""
        added = _read_version(field(update, "view-version"))
        added["schema-id"] = self._schema_of(added)
        same = [each for each in self._versions if _behaviour(each) == _behaviour(added)]
        if same:
            self._last_version = same[0]["version-id"]
            return
        _check_dialects(added)
        added["version-id"] = max(added["version-id"], _next(each["version-id"] for each in self._versions))
        self._versions.append(added)
        self._last_version = added["version-id"]
        self._added.add(added["version-id"])

    def _schema_of(self, version: Json) -> int:
        number: int = version["schema-id"]
        if number == LAST_ADDED:
            if self._last_schema is None:
                raise BadUpdate("Cannot set last added schema: no schema has been added")
            return self._last_schema
        if number not in map(_schema_id, self._schemas):
            raise BadUpdate(f"Cannot add version with unknown schema: {number}")
        return number

    def set_current_version(self, update: Json) -> None:
        """Make a version the current one; the log says when."""
        number: int | None = integer(update, "view-version-id")
        if number == LAST_ADDED:
            number = self._last_version
        if number is None:
            raise BadUpdate("Cannot set last version id: no current version id has been set")
        if number == self._raw["current-version-id"]:
            return
        version = _version(self._versions, number)
        if version is None:
            raise BadUpdate(f"Cannot set current version to unknown version: {number}")
        self._raw["current-version-id"] = number
        at = version["timestamp-ms"] if number in self._added else self._moment
        self._log_entry = {"timestamp-ms": at, "version-id": number}

    def metadata(self, *, replaced: Json | None = None) -> Json:
        """Return what became of it, without versions beyond the limit; `replaced` is what it replaces."""
        log = [*self._raw["version-log"], *([self._log_entry] if self._log_entry else [])]
        made = {**self._raw, "schemas": self._schemas, "versions": self._versions, "version-log": log}
        if replaced is not None:
            _check_lost_dialects(_current(replaced), _current(made), self._properties)
        limit = _history_limit(self._properties)
        if made == replaced:
            return made
        kept = self._kept_versions(max(limit, len(self._added | {made["current-version-id"]})))
        return {**made, "versions": kept, "version-log": _kept_log(log, kept, expired=len(kept) < len(self._versions))}

    def _kept_versions(self, limit: int) -> list[Json]:
        current = self._raw["current-version-id"]
        latest = sorted((each["version-id"] for each in self._versions), key=lambda each: (each == current, each))
        return [each for each in self._versions if each["version-id"] in latest[-limit:]]


ACTIONS: Mapping[str, Callable[[_ViewDraft, Json], None]] = {
    "assign-uuid": _ViewDraft.assign_uuid,
    "upgrade-format-version": _ViewDraft.upgrade_format,
    "set-location": _ViewDraft.set_location,
    "set-properties": _ViewDraft.set_properties,
    "remove-properties": _ViewDraft.remove_properties,
    "add-schema": _ViewDraft.add_schema,
    "add-view-version": _ViewDraft.add_version,
    "set-current-view-version": _ViewDraft.set_current_version,
}


def _kept_log(log: list[Json], kept: list[Json], *, expired: bool) -> list[Json]:
    """Return the log from after its last entry of a version that is gone."""
    known = {each["version-id"] for each in kept}
    gone = [at for at, entry in enumerate(log) if expired and entry["version-id"] not in known]
    return log[gone[-1] + 1 :] if gone else log


def _next(ids: Iterable[int]) -> int:
    number = max([0, *(each + 1 for each in ids)])
    if number >= INT:
        raise BadUpdate(f"Cannot assign an id beyond {number - 1}")
    return number


def _schema_id(schema: Json) -> int:
    number: int | None = schema.get("schema-id")
    return number or 0


def _version(versions: Sequence[Json], number: int) -> Json | None:
    return next((each for each in versions if each["version-id"] == number), None)


def _current(raw: Json) -> Json:
    number = raw["current-version-id"]
    found = _version(raw["versions"], number)
    if found is None:
        known = ", ".join(str(each["version-id"]) for each in raw["versions"])
        raise BadUpdate(f"Cannot find current version {number} in view versions: [{known}]")
    return found


def _behaviour(version: Json) -> Json:
    """Return what decides whether two versions do the same."""
    apart = ("version-id", "timestamp-ms")
    return {key: value for key, value in version.items() if key not in apart and value is not None}


def _dialects(version: Json) -> list[str]:
    return [each["dialect"].lower() for each in version["representations"] if _is_sql(each)]


def _is_sql(representation: Json) -> bool:
    kind: str = representation["type"]
    return kind.lower() == "sql"


def _check_dialects(version: Json) -> None:
    dialects = _dialects(version)
    for at, dialect in enumerate(dialects):
        if dialect in dialects[:at]:
            raise BadUpdate(f"Invalid view version: Cannot add multiple queries for dialect {escaped(dialect)}")


def _check_lost_dialects(before: Json, after: Json, properties: Mapping[str, str]) -> None:
    old, new = (sorted(set(map(escaped, _dialects(version)))) for version in (before, after))
    if properties.get(DIALECT_MAY_GO, "").lower() != "true" and not set(old) <= set(new):
        raise BadUpdate(
            f"Cannot replace view due to loss of view dialects ({DIALECT_MAY_GO}=false):\n"
            f"Previous dialects: [{', '.join(old)}]\nNew dialects: [{', '.join(new)}]"
        )


def _history_limit(properties: Mapping[str, str]) -> int:
    said = properties.get(HISTORY, "10")
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", said) or int(said) >= INT:
        raise BadUpdate(f"{HISTORY} must be an integer but was {shown(said)}")
    if int(said) <= 0:
        raise BadUpdate(f"{HISTORY} must be positive but was {int(said)}")
    return int(said)


def _check_format(number: int) -> None:
    if number != 1:
        raise BadUpdate(f"Unsupported format version: {number}")


def _read_schema(value: object) -> Json:
    """Return a schema whose columns are of types that some table may have."""
    raw = an_object(value, "schema")
    text(raw, "type")
    if raw.get("schema-id") is not None:
        integer(raw, "schema-id")
    Columns(raw, NEWEST)
    return raw


def _read_view(value: object) -> Json:
    """Return the metadata of a view whose fields are of the right types."""
    raw = an_object(value, "view metadata")
    for key in ("view-uuid", "location"):
        text(raw, key)
    _check_format(integer(raw, "format-version"))
    integer(raw, "current-version-id")
    for schema in array(raw, "schemas"):
        _read_schema(schema)
    for version in array(raw, "versions"):
        _read_version(version, stored=True)
    for entry in array(raw, "version-log"):
        long(an_object(entry, "version log entry"), "timestamp-ms")
        integer(entry, "version-id")
    if "properties" in raw:
        string_map(raw, "properties")
    return raw


def _read_version(value: object, *, stored: bool = False) -> Json:
    """Return a version whose fields are of the right types; a stored one may have representations of any type."""
    raw = an_object(value, "view version")
    integer(raw, "version-id")
    integer(raw, "schema-id")
    long(raw, "timestamp-ms")
    string_map(raw, "summary")
    optional_text(raw, "default-catalog")
    strings(raw, "default-namespace")
    read = [_read_representation(each) for each in array(raw, "representations")]
    unknown = sorted({each["type"] for each in read if not _is_sql(each)})
    if unknown and not stored:
        raise BadUpdate(f"Found unsupported view representations: [{escaped(', '.join(unknown))}]")
    return {**raw, "representations": read}


def _read_representation(value: object) -> Json:
    raw = an_object(value, "view representation")
    text(raw, "type")
    if not _is_sql(raw):
        return raw
    text(raw, "sql")
    text(raw, "dialect")
    return {**raw, "type": "sql"}
