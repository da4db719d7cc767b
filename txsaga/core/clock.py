"""The wall clock, which only this reads below the composition root, and lengths of time for people."""

from datetime import datetime, timedelta

import pendulum


def wall_clock() -> datetime:
    """Return the time of this machine, in UTC."""
    return pendulum.now("UTC")


def span_in_words(span: timedelta) -> str:
    """Write a length of time with its two largest units."""
    if span < timedelta(minutes=1):
        return f"{span.total_seconds():.1f} s"
    minutes, seconds = divmod(round(span.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    units = [f"{count} {unit}" for count, unit in ((days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s"))]
    first = next(at for at, count in enumerate((days, hours, minutes, seconds)) if count)
    return " ".join(units[first : first + 2])
