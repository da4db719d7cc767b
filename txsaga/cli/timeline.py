"""A timeline as commands print it: the lanes with their legend, then each step in words."""

from __future__ import annotations

from collections.abc import Sequence

from txsaga.cli.printing import printable, say, shown, table
from txsaga.model.timeline import Step, draw

COLUMNS = ("step", "at", "lane", "what", "who", "why")


def say_timeline(steps: Sequence[Step]) -> None:
    """Print a timeline."""
    for line in draw(steps):
        say(printable(line))
    say()
    rows = enumerate(steps, 1)
    table(COLUMNS, [(number, _when(step), step.lane, step.what, step.who, step.why) for number, step in rows])


def _when(step: Step) -> str:
    """Write a moment; one that nobody wrote down has at most an end."""
    moment = step.at or step.before
    if moment is None:
        return shown(None)
    written = moment.isoformat(sep=" ", timespec="milliseconds")
    return written if step.at else f"before {written}"
