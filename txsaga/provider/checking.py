"""
How a DAG names a checker: as a place that another process can import it from.

If a name led nowhere there, what it is to answer for would stay in doubt; so what can't be named is refused here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from txsaga.errors import ConfigError


def checker_name(checker: str | Callable[..., Any]) -> str:
    """Return the place of a checker, as module:function."""
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
