"""
When and how often a transaction is checked, and what happens to one that gets no answer.

An engine has a profile; a producer group may override parts of it. Only the store's clock measures these times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import timedelta
from enum import StrEnum
from typing import TypedDict

from txsaga.core.arguments import check_count, check_duration
from txsaga.errors import ConfigError, InvalidMessage

LONGEST = timedelta(days=36_500)
LEASE = timedelta(seconds=30)
"""An open transaction whose owner sent no heartbeat for this long counts as abandoned."""


class Exhausted(StrEnum):
    """What happens to a transaction that is out of checks."""

    PARK = "park"  # it stays invisible and listed until an operator settles it
    ROLL_BACK = "rollback"  # decided, where only a checker could have known better


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckProfile:
    """When and how often to check; the defaults are those of the classic documents."""

    interval: timedelta = timedelta(seconds=60)
    min_age: timedelta = timedelta(seconds=6)
    max_checks: int = 15
    total_limit: timedelta = timedelta(hours=72)
    reply_timeout: timedelta = timedelta(seconds=3)
    on_exhausted: Exhausted = Exhausted.PARK

    def __post_init__(self) -> None:
        for name in ("interval", "min_age", "total_limit", "reply_timeout"):
            check_duration(getattr(self, name), name, LONGEST)
        check_count(self.max_checks, "max_checks")
        if self.on_exhausted not in tuple(Exhausted):
            raise ConfigError(f"on_exhausted is {self.on_exhausted!r}; it is {' or '.join(Exhausted)}")
        object.__setattr__(self, "on_exhausted", Exhausted(self.on_exhausted))  # a plain text is accepted too

    def of_group(self, said: Mapping[str, object]) -> CheckProfile:
        """Return the profile with a group's settings."""
        return replace(self, **{name: read(name, value) for name, value in said.items()}) if said else self  # type: ignore[arg-type]

    @property
    def asking(self) -> timedelta:
        """How long checks go on when every answer is UNKNOWN."""
        return self.interval * self.max_checks


class CheckOptions(TypedDict, total=False):
    """What a producer group may override; None removes the override."""

    interval: timedelta | None
    min_age: timedelta | None
    max_checks: int | None
    total_limit: timedelta | None
    reply_timeout: timedelta | None
    on_exhausted: Exhausted | str | None


NAMES = tuple(each.name for each in fields(CheckProfile))
PROFILES = {"classic": CheckProfile(), "5x": CheckProfile(interval=timedelta(seconds=30))}
"""By the release whose defaults they are."""


def read(name: str, value: object) -> object:
    """Return a setting as the profile has it; times are stored as seconds."""
    default = getattr(PROFILES["classic"], name)
    if isinstance(default, timedelta) and isinstance(value, int | float):
        return timedelta(seconds=value)
    return Exhausted(str(value)) if isinstance(default, Exhausted) else value


def kept(changes: Mapping[str, object]) -> dict[str, object]:
    """Check a group's settings, and return them as stored; None removes one."""
    if unknown := changes.keys() - set(NAMES):
        raise ConfigError(f"{', '.join(sorted(unknown))} can't be set for checks; {', '.join(NAMES)} can")
    said = {name: value for name, value in changes.items() if value is not None}
    told = asdict(replace(CheckProfile(), **said))  # type: ignore[arg-type]
    return {name: _plain(told[name]) for name in said} | {n: None for n, value in changes.items() if value is None}


def _plain(value: object) -> object:
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value) if isinstance(value, Exhausted) else value


HEADER = "CHECK_IMMUNITY_TIME_IN_SECONDS"
MIN_AGE = 6
"""Seconds: a younger half message is never checked."""
MAX_IMMUNITY = 2**31 - 1
"""Seconds: what the row can hold."""


def checked(seconds: object) -> int | None:
    """Return an immunity given as an argument, or raise `InvalidMessage`."""
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int):
        raise InvalidMessage(f"immunity is {seconds!r}; give whole seconds as an int, or leave it out")
    if not 0 <= seconds <= MAX_IMMUNITY:
        raise InvalidMessage(f"immunity is {seconds} seconds; it must be between 0 and {MAX_IMMUNITY}")
    return seconds


def read_immunity(text: str | None) -> int | None:
    """Return the header's value; None if it is absent or not whole seconds."""
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > len(str(MAX_IMMUNITY)):
        return None
    return int(text) if int(text) <= MAX_IMMUNITY else None


def chosen(argument: object, headers: Mapping[str, str] | None) -> int | None:
    """Return the immunity of a half message: the argument's, else the header's."""
    given = checked(argument)
    return given if given is not None or not headers else read_immunity(headers.get(HEADER))
