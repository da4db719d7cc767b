"""Reads schemas in their JSON form: what one of Iceberg's Java readers would refuse is refused."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError as InvalidModel
from pyiceberg.exceptions import ValidationError as InvalidType
from pyiceberg.schema import Schema

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


def read_schema(value: object) -> Schema:
    """Return the schema that a JSON value is."""
    raw = an_object(value, "schema")
    if raw.get("type") != "struct":
        raise BadUpdate(f"Cannot create schema, not a struct type: {shown(raw.get('type'))}")
    try:
        return Schema.model_validate({**_struct(raw), **_ids(raw)})
    except InvalidModel as wrong:
        raise BadUpdate(f"Invalid schema: {_first(wrong)}") from None
    except (ValueError, TypeError, InvalidType) as wrong:
        if isinstance(wrong, BadUpdate):
            raise
        raise BadUpdate(f"Invalid schema: {' '.join(str(wrong).split())}") from None
    except RecursionError:
        raise BadUpdate("Invalid schema: its types are nested too deeply") from None


def same_schema(one: Schema, two: Schema) -> bool:
    """Tell if two schemas differ at most in their id."""
    same_identifiers = set(one.identifier_field_ids) == set(two.identifier_field_ids)
    return same_identifiers and one.as_struct() == two.as_struct()


def _ids(raw: Json) -> Json:
    found: Json = {}
    if raw.get("schema-id") is not None:
        found["schema-id"] = integer(raw, "schema-id")
    if raw.get("identifier-field-ids") is not None:
        found["identifier-field-ids"] = array(raw, "identifier-field-ids")
        for value in found["identifier-field-ids"]:
            if not is_integer(value):
                raise BadUpdate(f"Cannot parse integer from non-int value in identifier-field-ids: {shown(value)}")
    return found


def _struct(raw: Json) -> Json:
    return {"type": "struct", "fields": [_field(an_object(each, "struct field")) for each in array(raw, "fields")]}


def _field(raw: Json) -> Json:
    found: Json = {
        "id": integer(raw, "id"),
        "name": text(raw, "name"),
        "type": _type(field(raw, "type")),
        "required": boolean(raw, "required"),
        "doc": optional_text(raw, "doc"),
    }
    return found | {key: raw[key] for key in ("initial-default", "write-default") if raw.get(key) is not None}


def _type(value: Any) -> str | Json:
    if isinstance(value, str):
        return value
    match value:
        case {"type": "struct"}:
            return _struct(value)
        case {"type": "list"}:
            return {"type": "list", **_member(value, "element"), "element-required": boolean(value, "element-required")}
        case {"type": "map"}:
            members = {**_member(value, "key"), **_member(value, "value")}
            return {"type": "map", **members, "value-required": boolean(value, "value-required")}
    raise BadUpdate(f"Cannot parse type from json: {shown(value)}")


def _member(raw: Json, name: str) -> Json:
    return {f"{name}-id": integer(raw, f"{name}-id"), name: _type(field(raw, name))}


def _first(wrong: InvalidModel) -> str:
    found = wrong.errors(include_url=False, include_input=False)[0]
    place = "".join(f"{each}: " for each in (".".join(map(str, found["loc"])),) if each)
    return place + " ".join(found["msg"].removeprefix("Value error, ").split())
