"""Objects that work as in another process: what this process knows of topics stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from txsaga.core.topic import TopicChanges

Some = TypeVar("Some")


class Apart:
    """An object whose methods leave no trace in this process's knowledge of topics."""

    def __init__(self, inner: object) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return _unnoticed(found) if callable(found) else found


def apart(inner: Some) -> Some:
    """Return the object as if another process had it."""
    return Apart(inner)  # type: ignore[return-value]


def _unnoticed(call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def called(*values: object, **options: object) -> Any:
        before = TopicChanges.count
        try:
            return call(*values, **options)
        finally:
            TopicChanges.count = before

    return called
