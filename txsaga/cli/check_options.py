"""The options for when and how often a transaction is checked, of an engine or a producer group."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, cast

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


CheckInterval = Annotated[
    timedelta | None, typer.Option(parser=interval_of, metavar="TIME", help="Between two checks: 60, 90s, 15m.")
]
MinAge = Annotated[timedelta | None, typer.Option(parser=span_of, metavar="TIME", help="Before the first check.")]
MaxChecks = Annotated[
    int | None,
    typer.Option(parser=whole(1, MOST_CHECKS), metavar="NUMBER", help="Checks before a transaction is given up."),
]
TotalLimit = Annotated[
    timedelta | None, typer.Option(parser=span_of, metavar="TIME", help="Age at which it is given up: 72h, 30d.")
]
ReplyTimeout = Annotated[
    timedelta | None, typer.Option(parser=span_of, metavar="TIME", help="For a member to answer a question.")
]
OnExhausted = Annotated[
    Exhausted | None, typer.Option(help="What is given up is parked, or rolled back where no evidence is recorded.")
]


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


def said(
    check_interval: timedelta | None,
    min_age: timedelta | None,
    max_checks: int | None,
    total_limit: timedelta | None,
    reply_timeout: timedelta | None,
    on_exhausted: Exhausted | None,
) -> CheckOptions:
    """Return the options that were given, by the names of a profile."""
    values = (check_interval, min_age, max_checks, total_limit, reply_timeout, on_exhausted)
    given = {setting.field: value for setting, value in zip(Setting, values, strict=True) if value is not None}
    return cast(CheckOptions, given)  # the fields are those of a profile


def taking_back(changes: CheckOptions, reset: Iterable[Setting]) -> CheckOptions:
    """Return changes that leave some settings to the engine again."""
    return cast(CheckOptions, {**changes, **{setting.field: None for setting in reset}})
