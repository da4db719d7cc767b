"""
Checks of what a user may pass besides messages, by kind: the only place that checks it.

An error is one line that names the argument and says what to give. If a wrong value got past here, Python would raise
somewhere inside, or the value would be stored and another process would fail on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from inspect import isasyncgenfunction, iscoroutinefunction
from threading import TIMEOUT_MAX
from typing import TypeVar

from txsaga.core.stored_json import is_text
from txsaga.errors import ConfigError

Item = TypeVar("Item")
LONGEST_NUMBER = 20
"""Digits: more than any stored number has."""


def kind_of(value: object) -> str:
    """Return the kind of a value, as an error names it."""
    return name_of(type(value))


def name_of(kind: type) -> str:
    """Return the name of a kind for people."""
    return "None" if kind is type(None) else kind.__name__


def check_kind(value: object, wanted: type | tuple[type, ...], what: str, advice: str) -> None:
    """Raise `ConfigError` unless a value is of a kind; True and False are not numbers."""
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        raise ConfigError(f"{what} is {kind_of(value)}; {advice}")


def check_text(value: object, what: str, advice: str) -> None:
    """Raise `ConfigError` unless a value is a text that the store can keep."""
    check_kind(value, str, what, advice)
    if not value or not is_text(str(value)):
        raise ConfigError(f"{what} is {value!r}, which can't be kept; {advice}")


def check_function(value: object, what: str, advice: str) -> None:
    """Raise `ConfigError` unless a value can be called, and is done when it returns."""
    if not callable(value):
        raise ConfigError(f"{what} is {kind_of(value)}; {advice}")
    if _is_async(value):
        raise ConfigError(f"{what} is an async function, it would never run; {advice}, without async")


def check_seconds(value: object, what: str) -> None:
    """Raise `ConfigError` unless a thread can wait for this many seconds."""
    if type(value) not in (int, float) or not 0 <= value <= TIMEOUT_MAX:  # type: ignore[operator]  # it is a number
        raise ConfigError(f"{what} is {value!r}; give seconds, 0 or more")


def check_count(value: object, what: str) -> None:
    """Raise `ConfigError` unless a value is a count of 1 or more."""
    if type(value) is not int or value < 1:
        raise ConfigError(f"{what} is {value!r}; give a number, 1 or more")


def check_duration(value: object, what: str, longest: timedelta) -> None:
    """Raise `ConfigError` unless a value is a duration up to `longest`."""
    check_kind(value, timedelta, what, "give a timedelta, like timedelta(seconds=15)")
    if not timedelta(0) <= value <= longest:  # type: ignore[operator]  # it is a timedelta
        raise ConfigError(f"{what} is {value}; it must be between 0 and {longest.days:,} days")


def read_number(text: str) -> int | None:
    """Read a whole number, in the digits 0 to 9 only, else return None; a number of absurd length is cut off."""
    if not (text.isascii() and text.isdigit()):
        return None
    return int(text.lstrip("0")[:LONGEST_NUMBER] or 0)


def list_of(values: Iterable[Item], what: str, advice: str) -> list[Item]:
    """Return a list or another iterable as a list; refuse a text or bytes."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ConfigError(f"{what} is {kind_of(values)}; {advice}")
    return list(values)


def _is_async(function: object) -> bool:
    while isinstance(function, partial):
        function = function.func
    called = type(function).__call__
    return any(iscoroutinefunction(each) or isasyncgenfunction(each) for each in (function, called))
