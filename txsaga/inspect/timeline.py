"""
The timeline of a transaction: its durable steps in order, and the lanes in which they happened.

Steps in, text out: anything with lanes (a transaction, a flow, a saga) supplies its steps and is drawn by the same
code. Nothing is decided by a timeline; a step that is missing here may have happened all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from enum import Enum, IntEnum

MAIN_LANE = "MAIN"
WIDTH = 30
"""Steps that are drawn side by side."""


class TimelineKind(Enum):
    """What a step does to its lane: the mark in its column, and whether undo data is held after it."""

    CHANGE = ("change", "x", True)
    HELD = ("undo held", "=", True)
    NONE = ("none", "-", False)
    FINAL = ("final change", "x", False)

    def __init__(self, word: str, mark: str, holds: bool) -> None:
        self.word, self.mark, self.holds = word, mark, holds


LEGEND = {"x": "change", "=": "undo data held", "-": "none"}


class TimelinePhase(IntEnum):
    """Where the protocol places a step without a recorded moment."""

    OPENED = 0
    STORED = 1
    CLOSED = 2
    WORKED = 3
    ASKED = 4
    PARKED = 5
    DECIDED = 6
    GIVEN = 7
    AFTER = 8


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """One durable step."""

    what: str
    kind: TimelineKind
    phase: TimelinePhase
    _: KW_ONLY
    lane: str = MAIN_LANE
    at: datetime | None = None
    before: datetime | None = None  # the latest moment at which it can have happened
    who: str = ""
    why: str = ""


def in_order(steps: Iterable[TimelineStep]) -> list[TimelineStep]:
    """Order steps by their moments; one without a moment goes where the protocol places it."""
    given = list(steps)
    ordered = sorted((step for step in given if step.at is not None), key=lambda step: (step.at, step.phase))
    for step in sorted((step for step in given if step.at is None), key=lambda step: step.phase):
        ordered.insert(next((at for at, other in enumerate(ordered) if _follows(other, step)), len(ordered)), step)
    return ordered


def _follows(other: TimelineStep, step: TimelineStep) -> bool:
    if other.phase <= step.phase:
        return False
    return step.before is None or other.at is None or other.at >= step.before


def lanes(steps: Sequence[TimelineStep]) -> dict[str, str]:
    """Return the marks of each lane, one for each step; MAIN is the first lane."""
    names = dict.fromkeys([MAIN_LANE, *(step.lane for step in steps)])
    return {name: "".join(_marks(name, steps)) for name in names}


def _marks(lane: str, steps: Sequence[TimelineStep]) -> Iterable[str]:
    holds = False
    for step in steps:
        if step.lane == lane:
            holds = step.kind.holds
            yield step.kind.mark
        else:
            yield (TimelineKind.HELD if holds else TimelineKind.NONE).mark


def draw(steps: Sequence[TimelineStep]) -> list[str]:
    """Draw the lanes with the numbers of the steps above them and the legend below."""
    drawn: list[str] = []
    marked = lanes(steps)
    room, column = max(map(len, marked)), len(str(len(steps)))
    for first in range(0, len(steps), WIDTH):
        numbers = range(first, min(first + WIDTH, len(steps)))
        drawn.append(_line("", room, [str(number + 1) for number in numbers], column))
        drawn += [_line(lane, room, [marks[number] for number in numbers], column) for lane, marks in marked.items()]
    return [*drawn, "   ".join(f"{mark} {meaning}" for mark, meaning in LEGEND.items())]


def _line(head: str, room: int, cells: Sequence[str], column: int) -> str:
    return f"{head:<{room}}  {' '.join(f'{cell:>{column}}' for cell in cells)}"


def documented(steps: Sequence[TimelineStep]) -> dict[str, object]:
    """Return a timeline as data for programs."""
    return {
        "legend": LEGEND,
        "lanes": [{"lane": lane, "marks": marks} for lane, marks in lanes(steps).items()],
        "steps": [
            {
                "step": number,
                "at": step.at,
                "before": step.before,
                "lane": step.lane,
                "kind": step.kind.word,
                "what": step.what,
                "who": step.who,
                "why": step.why,
            }
            for number, step in enumerate(steps, 1)
        ],
    }
