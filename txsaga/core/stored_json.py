"""
JSON that a store can keep: the only place that writes users' values for other processes to read later.

A value that can't be kept is reported by name, before anything is stored. If it got past here, one store would refuse
it with its own message and another would keep it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime, timedelta

from txsaga.errors import ConfigError

_UNKEPT = re.compile(r"(?<!\\)(?:\\\\)*\\u0000|(?P<half>[\ud800-\udfff])")
"""A NUL as JSON writes it, or a lone surrogate: no database keeps them in its texts."""


def as_json(value: object, what: str) -> str:
    """Return a value as JSON that the store can keep."""
    try:
        return _written(value)
    except _Unkept as wrong:
        raise ConfigError(f"{what} {wrong.says}{_place(value)}{wrong.advice}") from None


def is_text(text: str) -> bool:
    """Return whether a text can be kept."""
    return _UNKEPT.search(json.dumps(text, ensure_ascii=False)) is None


class _Unkept(Exception):
    def __init__(self, says: str, advice: str = "") -> None:
        super().__init__(says)
        self.says, self.advice = says, advice


def _written(value: object) -> str:
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _Unkept(f"must be JSON, so that another process can continue with it: {error}") from None
    if "\\u" in text and (found := _UNKEPT.search(json.dumps(value, ensure_ascii=False))):
        code = ord(found["half"] or "\0")
        raise _Unkept(f"holds a character that can't be kept (U+{code:04X})", "; leave it out")
    return text


def _place(value: object) -> str:
    """Return the place of the wrong value in a mapping; names have none."""
    for name, each in value.items() if isinstance(value, Mapping) else ():
        try:
            _written(each)
        except _Unkept:
            return f" at {name!r}"
    return ""


def plain(value: object) -> object:
    """Return a value as JSON has it: times as ISO texts, lengths of time as seconds."""
    match value:
        case datetime():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case _:
            return str(value)
