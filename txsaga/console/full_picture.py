"""
The timeline of a transaction in full: a column for each lane, a row for each step with all that is known of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from txsaga.inspect.drawing import states
from txsaga.inspect.timeline import MAIN_LANE, TimelinePhase, TimelineStep, lanes

LEFT, TOP, COLUMN, ROW, LETTER = 50, 40, 90, 32, 6.6
SHORT = 12
"""Letters of a lane's name that fit."""


def full_picture(steps: Sequence[TimelineStep]) -> str:
    """Draw the steps of a timeline below each other."""
    places = {lane: LEFT + COLUMN * number for number, lane in enumerate(lanes(steps))}
    told, edge, end = [*map(_told, steps)], LEFT + COLUMN * len(places) - 30, TOP + ROW * len(steps)
    width = edge + round(LETTER * max(map(len, told), default=0))
    drawn = [
        f'<svg viewBox="0 0 {width} {end}" width="{width}" role="img" aria-label="the steps, one below the other">'
    ]
    for lane, x in places.items():
        name = "txsaga" if lane == MAIN_LANE else lane
        short = name if len(name) <= SHORT else f"{name[: SHORT - 1]}…"
        drawn.append(f'<text x="{x}" y="14" text-anchor="middle">{escape(short)}<title>{escape(name)}</title></text>')
        drawn.append(f'<path d="M{x} {TOP - ROW // 2}V{end}"/>')
        for number, state in enumerate(states(lane, steps)):
            drawn.append(f'<rect class="{state}" x="{x - 6}" y="{TOP + ROW * number}" width="12" height="{ROW}"/>')
    for number, (step, line) in enumerate(zip(steps, told, strict=True)):
        x, y = places[step.lane], TOP + ROW * number
        kind = "decision" if step.phase is TimelinePhase.DECIDED else "step"
        drawn.append(f'<circle class="{kind}" cx="{x}" cy="{y}" r="11"/>')
        drawn.append(f'<text class="number" x="{x}" y="{y + 4}">{number + 1}</text>')
        drawn.append(f'<text x="{edge}" y="{y + 4}">{escape(line)}</text>')
    return "".join([*drawn, "</svg>"])


def _told(step: TimelineStep) -> str:
    at = "" if step.at is None else f"{step.at:%H:%M:%S.%f}"[:-3] + " "
    return f"{at}{step.what}{f' · {step.who}' if step.who else ''}{f': {step.why}' if step.why else ''}"
