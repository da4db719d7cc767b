"""The wall clock, which everything below the composition root reads here, and lengths of time for people."""

from datetime import datetime, timedelta

import pendulum


def wall_clock() -> datetime:
    """Return the time of this machine, in UTC."""
    return pendulum.now("UTC")


def span_in_words(span: timedelta) -> str:
    """Write a length of time with its two largest units."""
    if span < timedelta(minutes=1):
        return f"{span.total_seconds():.1f} s"
    whole = pendulum.duration(seconds=round(span.total_seconds()))
    units = {"d": whole.days, "h": whole.hours, "min": whole.minutes, "s": whole.remaining_seconds}
    first = next(at for at, count in enumerate(units.values()) if count)
    return " ".join([f"{count} {unit}" for unit, count in units.items()][first : first + 2])
