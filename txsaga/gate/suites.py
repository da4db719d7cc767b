"""
Find suites: JSON files in the format of Great Expectations, by name, or a list of expectations.

The staging process only reads suites, so that a wrong name is found before hours of work. Only the gate process knows
what an expectation means.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from txsaga.config import SUITES
from txsaga.errors import ConfigError, UnknownSuite

FOLDER = "gx/expectations"
"""Where a Great Expectations project keeps its suites."""
SHAPE = '[{"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "id"}}, …]'

Expectation = Mapping[str, Any]


def folder(env: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the suites."""
    return Path(SUITES.of(env) or FOLDER)


def found(suite: str) -> list[Expectation]:
    """Read a suite by its name or the path of its file."""
    path = Path(suite) if suite.endswith(".json") else folder() / f"{suite}.json"
    try:
        said = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        known = sorted(each.stem for each in path.parent.glob("*.json"))
        raise UnknownSuite(suite, str(path.parent), known) from None
    except ValueError as error:
        raise ConfigError(f"suite {path} is no JSON: {error}; export it again") from error
    return checked(said.get("expectations") if isinstance(said, Mapping) else said, f"suite {path}")


def checked(said: object, what: str) -> list[Expectation]:
    """Check the shape of a list of expectations, before anything is staged."""
    if not isinstance(said, Sequence) or isinstance(said, str) or not said:
        raise ConfigError(f"{what} has no expectations; write {SHAPE}")
    if not all(isinstance(each, Mapping) and isinstance(each.get("type"), str) for each in said):
        raise ConfigError(f"{what} has an expectation without a type; write {SHAPE}")
    return list(said)


def columns_of(expectation: Expectation) -> Iterator[str]:
    """Yield the columns that an expectation names."""
    kwargs = expectation.get("kwargs") or {}
    for key in ("column", "column_A", "column_B"):
        if isinstance(kwargs.get(key), str):
            yield kwargs[key]
    yield from kwargs.get("column_list") or () if _is_compound(expectation) else ()


def needs_all_columns(expectations: Sequence[Expectation]) -> bool:
    """Return whether any expectation may read columns that it does not name."""
    return any(
        (each.get("kwargs") or {}).get("row_condition") is not None
        or not (next(columns_of(each), None) or each["type"].startswith("expect_table_row_count"))
        for each in expectations
    )


def _is_compound(expectation: Expectation) -> bool:
    return not str(expectation["type"]).startswith("expect_table_")
