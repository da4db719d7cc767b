"""Loads functions that settings name as module:function. If a module fails to load, the error names it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from txsaga.errors import ConfigError


def load(name: str, what: str) -> Any:  # the caller knows the type
    """Load a function named module:callable."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as reason:
        raise ConfigError(f"{what} {name!r} can't be loaded: {reason}") from reason
    except (Exception, SystemExit) as raised:  # the user's module may raise anything
        told = f"{type(raised).__name__}: {raised}"
        raise ConfigError(f"{what} {name!r} can't be loaded, its module raised {told}") from raised
