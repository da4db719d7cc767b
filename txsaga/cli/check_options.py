"""The options for when and how often a transaction is checked, of an engine or a producer group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, cast

import typer

from txsaga.checkback.profile import CheckOptions, Exhausted
from txsaga.cli.options import span_of, whole

SHORTEST = timedelta(seconds=0.1)
"""Between two checks; with less a round would do nothing but ask."""
MOST_CHECKS = 1_000_000_000


def interval_of(text: str) -> timedelta:
    """Read the time between two checks."""
    span = span_of(text)
    if span < SHORTEST:
        raise typer.BadParameter(f"{text!r} is too short; the least is {SHORTEST.total_seconds():g}s")
    return span


def _span(told: str, parser: Any = span_of) -> Any:
    return Annotated[timedelta | None, typer.Option(parser=parser, metavar="TIME", help=told)]


CHECKS: dict[str, Any] = {
    "check_interval": _span("Time between two checks: 60, 90s, 15m.", interval_of),
    "min_age": _span("Age of a transaction at its first check."),
    "max_checks": Annotated[
        int | None,
        typer.Option(parser=whole(1, MOST_CHECKS), metavar="NUMBER", help="Maximum number of checks per transaction."),
    ],
    "total_limit": _span("Age after which a transaction is no longer checked: 72h, 30d."),
    "reply_timeout": _span("Time that a producer has to answer a check."),
    "on_exhausted": Annotated[
        Exhausted | None,
        typer.Option(help="After the last check: park the transaction, or roll it back if it records no evidence."),
    ],
}


class Setting(StrEnum):
    """A setting, named as its option."""

    CHECK_INTERVAL = "check-interval"
    MIN_AGE = "min-age"
    MAX_CHECKS = "max-checks"
    TOTAL_LIMIT = "total-limit"
    REPLY_TIMEOUT = "reply-timeout"
    ON_EXHAUSTED = "on-exhausted"

    @property
    def field(self) -> str:
        """The setting as a profile names it."""
        return self.removeprefix("check-").replace("-", "_")


def of_profile(options: Mapping[str, object], reset: Iterable[Setting] = ()) -> CheckOptions:
    """Return options by the names of a profile; those to reset are left to the engine again."""
    given = {name.removeprefix("check_"): value for name, value in options.items()}
    return cast(CheckOptions, {**given, **{setting.field: None for setting in reset}})
