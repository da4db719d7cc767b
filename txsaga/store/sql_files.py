"""
The SQL files of the slices. A statement begins after the line `-- name: x` and its comments, and ends with a semicolon.

The files call the namespace `txsaga`. Parameters, and what is put together at run time (in braces), are filled in by
the program; a statement without either can be pasted into psql as it is. `{statement x}` stands for another one of the
same file, `{statement store/decision.x}` for one of `store/sql/decision.sql`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pkgutil import get_data

_BEGIN = re.compile(r"^-- name: (\w+)\n(?:--.*\n)*", re.MULTILINE)
_NAMESPACE = re.compile(r"\btxsaga\.")
_WITHIN = re.compile(r"\{statement (?:(\w+)/(\w+)\.)?(\w+)\}")
_NAMED = re.compile(r"%\((\w+)\)s|(?<!:):(\w+)")


@cache
def read(path: str) -> Mapping[str, str]:
    """Return the statements of a file by name, as templates: `{s}` is the quoted namespace."""
    file = get_data("txsaga", path)
    assert file is not None
    _, *parts = _BEGIN.split(_NAMESPACE.sub("{s}.", file.decode()))
    found = {name: sql.strip().removesuffix(";") for name, sql in zip(parts[::2], parts[1::2], strict=True)}

    def filled(sql: str) -> str:
        return _WITHIN.sub(lambda named: filled(_named(found, *named.groups())), sql)

    return {name: filled(sql) for name, sql in found.items()}


def _named(here: Mapping[str, str], slice: str | None, file: str | None, name: str) -> str:
    return here[name] if slice is None else read(f"{slice}/sql/{file}.sql")[name]


def numbered(sql: str, names: Sequence[str]) -> str:
    """Replace named parameters, of both styles, with their positions in `names`: for the body of a function."""
    return _NAMED.sub(lambda found: f"${names.index(found[1] or found[2]) + 1}", sql).strip()
