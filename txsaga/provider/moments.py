"""
Moments that a DAG says: each has a time zone, or it is refused in one line, at the parse where it is known by then.

A moment without one means another time on each machine. If it got past here, the message would come hours too early, or
too late, and nobody would be told.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from txsaga.errors import ConfigError

ADVICE = "give pendulum.datetime(…, tz=…), or a text like 2026-03-01T08:00:00+01:00"


def require_zone(moment: object, what: str) -> None:
    """Refuse a moment without a time zone; texts are looked at when they are rendered."""
    if isinstance(moment, datetime) and moment.utcoffset() is None:
        raise ConfigError(f"{what} is {moment}, without a time zone; {ADVICE}")


def moment_of(said: object, what: str) -> datetime | None:
    """Read a moment as it was given, or rendered."""
    if said is None or said == "":
        return None
    try:
        moment = datetime.fromisoformat(said) if isinstance(said, str) else said
    except ValueError:
        moment = None
    if not isinstance(moment, datetime):
        raise ConfigError(f"{what} is {said!r}, which is no moment; {ADVICE}")
    require_zone(moment, what)
    return moment


def require_zones(options: Mapping[str, object], *names: str) -> None:
    """Refuse moments without a time zone among what is said of a DAG, and of its tasks."""
    tasks = options.get("default_args")
    for said, where in ((options, ""), (tasks if isinstance(tasks, Mapping) else {}, " in default_args")):
        for name in names:
            require_zone(said.get(name), f"{name}{where}")
