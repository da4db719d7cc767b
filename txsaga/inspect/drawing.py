"""
The timeline of a transaction as a picture: a lane for each resource, a number for each step, the decision as a line.

A bar shows where something is stored or prepared but hidden, and where readers see it. Its colours come from the style
sheet of the page that holds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from txsaga.inspect.timeline import MAIN_LANE, TimelineKind, TimelineStep, lanes
from txsaga.inspect.timeline import TimelinePhase as Phase

LEFT, TOP, COLUMN, ROW = 90, 24, 42, 36
SHORT, CLOSEST = 12, 26
"""Letters of a lane's name that fit, and the distance between steps of the same moment."""


def picture(steps: Sequence[TimelineStep], *, to_scale: bool = False) -> str:
    """Draw the lanes of a timeline as SVG, its steps side by side, or at their moments."""
    rows = {lane: TOP + ROW * number for number, lane in enumerate(lanes(steps))}
    places = _at_moments(steps) if to_scale else [LEFT + COLUMN * number for number in range(len(steps))]
    width, height = (places[-1] if places else LEFT) + COLUMN, TOP + ROW * len(rows)
    drawn = [f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="the steps in order">']
    for lane, y in rows.items():
        drawn.append(f'<text y="{y + 4}">{_name(lane)}</text><path d="M{LEFT} {y}H{width}"/>')
        for x, end, state in zip(places, [*places[1:], width], states(lane, steps), strict=True):
            drawn.append(f'<rect class="{state}" x="{x}" y="{y - 6}" width="{end - x}" height="12"/>')
    for number, (x, step) in enumerate(zip(places, steps, strict=True), 1):
        kind = "decision" if step.phase is Phase.DECIDED else "kill" if step.what.startswith("kill ") else "step"
        y = rows[step.lane]
        drawn.append(
            f'<path class="mark {kind}" d="M{x} 8V{height}"/><circle class="{kind}" cx="{x}" cy="{y}" r="11"/>'
        )
        drawn.append(f'<text class="number" x="{x}" y="{y + 4}">{number}<title>{escape(step.what)}</title></text>')
    return "".join([*drawn, "</svg>"])


def _name(lane: str) -> str:
    if lane == MAIN_LANE:
        return "txsaga"
    return escape(lane) if len(lane) <= SHORT else f"{escape(lane[: SHORT - 1])}…<title>{escape(lane)}</title>"


def _at_moments(steps: Sequence[TimelineStep]) -> list[int]:
    """Return places in proportion to the moments; no step covers the one before."""
    known = [step.at for step in steps if step.at is not None]
    first, last = min(known, default=None), max(known, default=None)
    span = (last - first).total_seconds() if first is not None and last is not None else 0.0
    places = list[int]()
    for step in steps:
        part = (step.at - first).total_seconds() / span if span and first is not None and step.at is not None else 0.0
        least = places[-1] + CLOSEST if places else LEFT
        places.append(max(round(LEFT + COLUMN * max(len(steps), 12) * part), least))
    return places


def states(lane: str, steps: Sequence[TimelineStep]) -> Iterator[str]:
    """Yield after each step whether a lane holds something that is hidden, or that readers see."""
    state = "none"
    for step in steps:
        if step.lane == lane and (lane != MAIN_LANE or state != "visible"):
            final = step.kind is TimelineKind.FINAL and (step.phase is Phase.GIVEN or "COMMIT" in step.what)
            published = final or (step.phase is Phase.GIVEN and lane == MAIN_LANE)
            state = "visible" if published else "hidden" if step.kind.holds or "COMMIT" in step.what else "none"
        yield state
