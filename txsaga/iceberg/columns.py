"""The columns of a schema in its JSON form: indexed, compared, numbered anew, and checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from txsaga.iceberg.json_fields import (
    Json,
    an_object,
    array,
    boolean,
    field,
    integer,
    is_integer,
    optional_text,
    shown,
    text,
)
from txsaga.iceberg.refusals import BadUpdate

HIGHEST_ID = 2_147_483_447
"""Ids above are those of metadata columns."""

DEEPEST = 64
COMPARED = ("id", "name", "required", "doc", "initial-default", "write-default")
SINCE_3 = {"timestamp_ns", "timestamptz_ns", "unknown", "variant", "geometry", "geography"}
PRIMITIVES = SINCE_3 | {
    *(
        "boolean",
        "int",
        "long",
        "float",
        "double",
        "date",
        "time",
        "timestamp",
        "timestamptz",
        "string",
        "uuid",
        "binary",
    ),
    *("decimal", "fixed"),
}
PARAMETERS = {
    "decimal": re.compile(r"decimal\((\d{1,2}), *(\d{1,2})\)"),
    "fixed": re.compile(r"fixed\[\d{1,9}\]"),
    "geometry": re.compile(r"geometry(\([^()]*\))?"),
    "geography": re.compile(r"geography(\([^()]*\))?"),
}
DEFAULTS: Mapping[str, tuple[type, ...]] = {
    **{"boolean": (bool,), "int": (int,), "long": (int,)},
    **dict.fromkeys(("float", "double"), (int, float)),
}
"""What a default value of a column is in JSON; that of other primitive types is a text."""

WIDER = {("int", "long"), ("float", "double")}
WIDER_SINCE_3 = {("date", "timestamp"), ("date", "timestamp_ns")}


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a member of a nested one."""

    id: int
    name: str
    type: str
    required: bool
    reached: bool
    """No struct above it can be null, and it is in no list or map."""

    @property
    def primitive(self) -> bool:
        """Whether it is neither a struct nor a list nor a map."""
        return self.type not in ("struct", "list", "map")


class Columns:
    """Every column of a schema, by id and by name."""

    def __init__(self, schema: Json, version: int) -> None:
        self.by_id: dict[int, Column] = {}
        self.by_name: dict[str, int] = {}
        self._version = version
        if schema.get("type", "struct") != "struct":
            raise BadUpdate(f"Cannot create schema, not a struct type: {shown(schema.get('type'))}")
        self._struct(schema, "", True, 0)
        self._check_identifiers(schema)

    @property
    def highest(self) -> int:
        """The highest id; 0 if there are no columns."""
        return max(self.by_id, default=0)

    def _struct(self, raw: Json, prefix: str, reached: bool, depth: int) -> None:
        for each in array(raw, "fields"):
            part = an_object(each, "struct field")
            name, required = f"{prefix}{text(part, 'name')}", boolean(part, "required")
            optional_text(part, "doc")
            self._check_defaults(part, name)
            self._column(part, "id", name, field(part, "type"), required, reached, depth)

    def _check_defaults(self, raw: Json, name: str) -> None:
        for key in ("initial-default", "write-default"):
            value = raw.get(key)
            if value is None:
                continue
            if key == "initial-default" and self._version < 3:
                raise BadUpdate(
                    f"Invalid schema for v{self._version}: Invalid initial default for {shown(name)}: "
                    f"non-null default ({shown(value)}) is not supported until v3"
                )
            kinds = DEFAULTS.get(raw["type"], (str,)) if isinstance(raw.get("type"), str) else (dict,)
            if (
                not isinstance(value, kinds)
                or (isinstance(value, bool) and bool not in kinds)
                or (kinds == (dict,) and value)
            ):
                raise BadUpdate(f"Cannot parse {key} of {shown(name)}: {shown(value)}")

    def _column(self, raw: Json, key: str, name: str, kind: Any, required: bool, reached: bool, depth: int) -> None:
        number = integer(raw, key)
        if not 0 <= number <= HIGHEST_ID:
            raise BadUpdate(f"Invalid schema: the id of {shown(name)} is out of range: {number}")
        if number in self.by_id:
            names = f"{shown(self.by_id[number].name)} and {shown(name)}"
            raise BadUpdate(f"Invalid schema: multiple fields with id {number}: {names}")
        if name in self.by_name:
            raise BadUpdate(
                f"Invalid schema: multiple fields for name {shown(name)}: {self.by_name[name]} and {number}"
            )
        self.by_name[name] = number
        self.by_id[number] = Column(number, name, self._kind(kind, name), required, reached)
        if isinstance(kind, dict):
            self._nested(kind, name, reached and required, depth + 1)

    def _kind(self, kind: Any, name: str) -> str:
        if isinstance(kind, dict):
            if kind.get("type") in ("struct", "list", "map"):
                return str(kind["type"])
            raise BadUpdate(f"Cannot parse type from json: {shown(kind.get('type'))}")
        base = base_type(kind)
        if base in SINCE_3 and self._version < 3:
            raise BadUpdate(
                f"Invalid schema for v{self._version}: Invalid type for {shown(name)}: {kind} is not supported until v3"
            )
        return str(kind)

    def _nested(self, kind: Json, name: str, reached: bool, depth: int) -> None:
        if depth > DEEPEST:
            raise BadUpdate("Invalid schema: its types are nested too deeply")
        match kind["type"]:
            case "struct":
                self._struct(kind, f"{name}.", reached, depth)
            case "list":
                required = boolean(kind, "element-required")
                self._column(kind, "element-id", f"{name}.element", field(kind, "element"), required, False, depth)
            case _:
                required = boolean(kind, "value-required")
                self._column(kind, "key-id", f"{name}.key", field(kind, "key"), True, False, depth)
                self._column(kind, "value-id", f"{name}.value", field(kind, "value"), required, False, depth)

    def _check_identifiers(self, schema: Json) -> None:
        for number in identifiers(schema):
            column = self.by_id.get(number)
            if column is None:
                raise BadUpdate(f"Cannot add fieldId {number} as an identifier field: field does not exist")
            wrong = (
                (not column.primitive, "not a primitive type field"),
                (not column.required, "not a required field"),
                (column.type in ("float", "double"), "must not be float or double field"),
                (not column.reached, "must not be nested in an optional field, a list or a map"),
            )
            for is_wrong, why in wrong:
                if is_wrong:
                    raise BadUpdate(f"Cannot add field {shown(column.name)} as an identifier field: {why}")


def base_type(kind: object) -> str:
    """Return a primitive type without its parameters."""
    if not isinstance(kind, str):
        raise BadUpdate(f"Cannot parse type from json: {shown(kind)}")
    base = re.split(r"[\[(]", kind, maxsplit=1)[0]
    form = PARAMETERS.get(base)
    if base not in PRIMITIVES or (kind != base if form is None else not (found := form.fullmatch(kind))):
        raise BadUpdate(f"Cannot parse type string to primitive: {shown(kind)}")
    if base == "decimal" and not (0 < int(found[1]) <= 38 and int(found[2]) <= int(found[1])):  # type: ignore[index]
        raise BadUpdate(f"Decimals with this precision are not supported: {kind}")
    return base


def identifiers(schema: Json) -> frozenset[int]:
    """Return the ids of the columns that identify a row."""
    if schema.get("identifier-field-ids") is None:
        return frozenset()
    found = array(schema, "identifier-field-ids")
    for number in found:
        if not is_integer(number):
            raise BadUpdate(f"Cannot parse integer from non-int value in identifier-field-ids: {shown(number)}")
    return frozenset(found)


def same_schema(one: Json, two: Json) -> bool:
    """Tell if two schemas that were checked differ at most in their id."""
    return identifiers(one) == identifiers(two) and _shape({**one, "type": "struct"}) == _shape(
        {**two, "type": "struct"}
    )


def _shape(kind: Any) -> Any:
    """Return what two types have in common if they are equal."""
    if not isinstance(kind, dict):
        return str(kind).replace(" ", "")
    match kind.get("type"):
        case "struct":
            fields = [an_object(each, "struct field") for each in array(kind, "fields")]
            return [(*(each.get(key) for key in COMPARED), _shape(each.get("type"))) for each in fields]
        case "list":
            return (kind.get("element-id"), kind.get("element-required"), _shape(kind.get("element")))
    members = [(kind.get(f"{member}-id"), _shape(kind.get(member))) for member in ("key", "value")]
    return (members, kind.get("value-required"))


def is_readable_as(old: str, new: str, version: int) -> bool:
    """Tell if what was written with one type can be read with another."""
    one, two = old.replace(" ", ""), new.replace(" ", "")
    if one == two or (one, two) in WIDER or (version >= 3 and (one == "unknown" or (one, two) in WIDER_SINCE_3)):
        return True
    before, after = PARAMETERS["decimal"].fullmatch(one), PARAMETERS["decimal"].fullmatch(two)
    return bool(before and after and before[2] == after[2] and int(before[1]) <= int(after[1]))


def numbered_anew(schema: Json) -> tuple[Json, dict[int, int]]:
    """Return a checked schema with ids from 1 on, and the new id of each old one."""
    found: dict[int, int] = {}
    numbers = count(1)

    def fresh(old: int) -> int:
        found[old] = next(numbers)
        return found[old]

    anew = _anew({**schema, "type": "struct"}, fresh) | {"schema-id": 0}
    if ids := identifiers(schema):
        anew["identifier-field-ids"] = sorted(found[each] for each in ids)
    return anew, found


def _anew(kind: Any, fresh: Callable[[int], int]) -> Any:
    """Return a type with new ids: those of a level first, then those below."""
    if not isinstance(kind, dict):
        return kind
    if kind["type"] == "struct":
        level = [{**each, "id": fresh(each["id"])} for each in kind["fields"]]
        return {**kind, "fields": [{**each, "type": _anew(each["type"], fresh)} for each in level]}
    members = ("element",) if kind["type"] == "list" else ("key", "value")
    ids = {f"{member}-id": fresh(kind[f"{member}-id"]) for member in members}
    return {**kind, **ids, **{member: _anew(kind[member], fresh) for member in members}}


def reused(columns: Columns, current: Columns, older: Iterable[Columns], last: int, version: int) -> Column | None:
    """Return the first column whose id had another type, so that what is stored could not be read."""
    unknown: list[Column] = []
    for number, column in columns.by_id.items():
        if number not in current.by_id:
            unknown += [column] if number <= last else []
        elif not is_readable_as(current.by_id[number].type, column.type, version):
            return column
    known = list(older) if unknown else []
    for column in unknown:
        before = [each.by_id[column.id].type for each in known if column.id in each.by_id]
        if before and not any(is_readable_as(each, column.type, version) for each in before):
            return column
    return None
