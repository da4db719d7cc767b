"""Reads one field of a client's JSON, or refuses it in the words of Iceberg's Java library."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from txsaga.iceberg.refusals import BadUpdate

Json = dict[str, Any]

INT, LONG = 2**31, 2**63


def an_object(value: object, what: str) -> Json:
    """Return a value that is an object."""
    if not isinstance(value, dict):
        raise BadUpdate(f"Cannot parse {what} from a non-object: {shown(value)}")
    return value


def field(raw: Json, key: str) -> Any:
    """Return what an object has under a key, which is not null."""
    if raw.get(key) is None:
        raise BadUpdate(f"Cannot parse missing field: {key}")
    return raw[key]


def text(raw: Json, key: str) -> str:
    """Return a string."""
    value: str = _value(raw, key, "string", "a string", lambda value: isinstance(value, str))
    return value


def optional_text(raw: Json, key: str) -> str | None:
    """Return a string, or None where it is missing or null."""
    return None if raw.get(key) is None else text(raw, key)


def integer(raw: Json, key: str) -> int:
    """Return an integer of 32 bits."""
    value: int = _value(raw, key, "int", "an integer", lambda value: is_integer(value, INT))
    return value


def long(raw: Json, key: str) -> int:
    """Return an integer of 64 bits."""
    value: int = _value(raw, key, "long", "a long", lambda value: is_integer(value, LONG))
    return value


def boolean(raw: Json, key: str) -> bool:
    """Return true or false."""
    value: bool = _value(raw, key, "boolean", "a boolean", lambda value: isinstance(value, bool))
    return value


def _value(raw: Json, key: str, kind: str, named: str, fits: Callable[[object], bool]) -> Any:
    if key not in raw:
        raise BadUpdate(f"Cannot parse missing {kind}: {key}")
    if not fits(raw[key]):
        raise BadUpdate(f"Cannot parse to {named} value: {key}: {shown(raw[key])}")
    return raw[key]


def is_integer(value: object, limit: int = INT) -> bool:
    """Tell an integer from anything else, True and 1.0 included."""
    return isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit


def array(raw: Json, key: str) -> Sequence[Any]:
    """Return an array of anything."""
    value = field(raw, key)
    if not isinstance(value, list):
        raise BadUpdate(f"Cannot parse JSON array from non-array value: {key}: {shown(value)}")
    return value


def strings(raw: Json, key: str) -> Sequence[str]:
    """Return an array of strings."""
    values = array(raw, key)
    for value in values:
        if not isinstance(value, str):
            raise BadUpdate(f"Cannot parse string from non-text value in {key}: {shown(value)}")
    return values


def string_map(raw: Json, key: str) -> Mapping[str, str]:
    """Return an object whose values are strings."""
    value = field(raw, key)
    if not isinstance(value, dict):
        raise BadUpdate(f"Cannot parse string map from non-object value: {key}: {shown(value)}")
    for name in value:
        text(value, name)
    return value


def shown(value: object) -> str:
    """Return a value as an error shows it: short, on one line."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    return json.dumps(value)[:99]


def escaped(value: str) -> str:
    """Return a string as an error quotes it: on one line."""
    return json.dumps(value)[1:-1]
