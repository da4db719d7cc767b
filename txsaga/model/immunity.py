"""
Immunity: how many seconds a half is left alone before its first check, by its own wish.

An argument is the programmer's and is checked. The header is written by clients of half messages; what
can't be read counts as not set there, as they are used to. One floor holds for both: less than the minimum
age is raised to it. Without that floor a check could ask while the local work is still being done.
"""

from __future__ import annotations

from collections.abc import Mapping

from txsaga.errors import InvalidMessage

HEADER = "CHECK_IMMUNITY_TIME_IN_SECONDS"
MIN_AGE = 6
"""Seconds: nobody is asked about a younger half."""
LONGEST = 2**31 - 1
"""Seconds: what a half row can hold."""


def checked(seconds: object) -> int | None:
    """Return an immunity given as an argument, or raise `InvalidMessage`."""
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int):
        raise InvalidMessage(f"immunity is {seconds!r}; give whole seconds as an int, or leave it out")
    if not 0 <= seconds <= LONGEST:
        raise InvalidMessage(f"immunity is {seconds} seconds; it lies between 0 and {LONGEST}")
    return seconds


def read(text: str | None) -> int | None:
    """Read the header; None when it is absent or no whole number of seconds."""
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > len(str(LONGEST)):
        return None
    return int(text) if int(text) <= LONGEST else None


def chosen(argument: object, headers: Mapping[str, str] | None) -> int | None:
    """Return the immunity of a half: the argument's, else the header's."""
    given = checked(argument)
    return given if given is not None or not headers else read(headers.get(HEADER))


def effective(seconds: int | None) -> int:
    """Return what counts: the immunity, never less than the minimum age."""
    return MIN_AGE if seconds is None else max(seconds, MIN_AGE)
