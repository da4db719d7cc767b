"""
How a DAG names a checker: as module:function that another process can import.

If another process could not import it, the group's transactions would stay undecided; so such checkers are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from txsaga.errors import ConfigError


def checker_name(checker: str | Callable[..., Any]) -> str:
    """Return the import path of a checker, as module:function."""
    if isinstance(checker, str):
        if checker.count(":") != 1:
            raise ConfigError(f"checker {checker!r}: write module:function, of a module that others can import")
        return checker
    name = getattr(checker, "__qualname__", "")
    module = getattr(checker, "__module__", "")
    if not name.isidentifier() or module.startswith("unusual_prefix_"):
        raise ConfigError(
            f"checker {name or checker!r} lies where nobody else can import it; put it into a module and write "
            "checker='module:function'"
        )
    return f"{module}:{name}"
