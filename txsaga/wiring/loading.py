"""What is named in settings as module:function. A module that fails while it is loaded is told by its name."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from txsaga.errors import ConfigError


def load(name: str, what: str) -> Any:  # whoever asks for it knows what it must be
    """Load a function named module:callable."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as reason:
        raise ConfigError(f"{what} {name!r} can't be loaded: {reason}") from reason
    except (Exception, SystemExit) as raised:  # the user's module: whatever it raises is its own fault
        told = f"{type(raised).__name__}: {raised}"
        raise ConfigError(f"{what} {name!r} can't be loaded, its module raised {told}") from raised
