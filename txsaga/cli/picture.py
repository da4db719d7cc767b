"""One HTML page with timelines as pictures; it holds no script and loads nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pkgutil import get_data
from string import Template

from txsaga.inspect.timeline import MAIN_LANE, TimelineKind, TimelineStep, lanes
from txsaga.inspect.timeline import TimelinePhase as Phase

LEFT, TOP, COLUMN, ROW = 90, 24, 42, 36
PAGE = Template((get_data("txsaga", "cli/picture.html") or b"").decode())
Rows = Sequence[Sequence[str]]


def page(about: str, sections: Iterable[str]) -> str:
    """Return the page with its sections."""
    return PAGE.substitute(about=escape(about), sections="\n".join(sections))


def section(title: str, why: str, columns: Sequence[str], rows: Rows, steps: Sequence[TimelineStep]) -> str:
    """Return what was seen of a transaction as a table, and its steps as a picture and a list."""
    listed = [(str(number), each.what, each.why) for number, each in enumerate(steps, 1)]
    return (
        f"<h2>{escape(title)}</h2><p>{escape(why)}</p>{_table(columns, rows)}{picture(steps)}"
        f"<details open><summary>Steps</summary>{_table(('step', 'what', 'why'), listed)}</details>"
    )


def _table(columns: Sequence[str], rows: Rows) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(each)}</td>' for each in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def picture(steps: Sequence[TimelineStep]) -> str:
    """Draw the lanes: a bar where something is hidden or visible, a number for each step."""
    rows = {lane: TOP + ROW * number for number, lane in enumerate(lanes(steps))}
    places = [LEFT + COLUMN * number for number in range(len(steps) + 1)]
    width, height = places[-1], TOP + ROW * len(rows)
    drawn = [f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="the steps in order">']
    for lane, y in rows.items():
        name = "txsaga" if lane == MAIN_LANE else escape(lane)
        drawn.append(f'<text y="{y + 4}">{name}</text><path d="M{LEFT} {y}H{width}"/>')
        for x, state in zip(places, _states(lane, steps), strict=False):
            drawn.append(f'<rect class="{state}" x="{x}" y="{y - 6}" width="{COLUMN}" height="12"/>')
    for number, (x, step) in enumerate(zip(places, steps, strict=False), 1):
        y, kind = rows[step.lane], "decision" if step.phase is Phase.DECIDED else step.what.partition(" ")[0]
        drawn.append(f'<path class="mark {kind}" d="M{x} 8V{height}"/><circle class="{kind}" cx="{x}" cy="{y}"/>')
        drawn.append(f'<text class="number" x="{x}" y="{y + 4}">{number}<title>{escape(step.what)}</title></text>')
    return "".join([*drawn, "</svg>"])


def _states(lane: str, steps: Sequence[TimelineStep]) -> Iterator[str]:
    """Yield after each step whether a lane holds something that is hidden, or that readers see."""
    state = "none"
    for step in steps:
        if step.lane == lane:
            published = step.phase is Phase.GIVEN and (step.kind is TimelineKind.FINAL or lane == MAIN_LANE)
            state = "visible" if published else "hidden" if step.kind.holds or "COMMIT" in step.what else "none"
        yield state
