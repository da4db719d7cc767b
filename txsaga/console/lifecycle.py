"""
The lifecycle of transactions as SVG, drawn from its table, with the present state marked.

Colours come from the classes of the style sheet, so that they follow its theme.
"""

from __future__ import annotations

from html import escape

from txsaga.core.lifecycle import TRANSACTION, TxState

PLACES = {
    TxState.ACTIVE: (60, 60),
    TxState.SEALED: (230, 60),
    TxState.PREPARED: (400, 60),
    TxState.PARKED: (315, 150),
    TxState.COMMITTED: (600, 60),
    TxState.ROLLED_BACK: (600, 240),
}
WIDE, HIGH, FAR = 52, 16, 180
"""Half the width and height of a state, and from where on a move passes above others."""
TIP = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path class="tip" d="M0 0 L8 4 L0 8 z"/></marker></defs>'
)


def lifecycle(state: str) -> str:
    """Draw the lifecycle table of transactions, with the present state marked."""
    body = [TIP, *(_arrow(PLACES[source], PLACES[target]) for (source, _), target in TRANSACTION.moves.items())]
    for each, (x, y) in PLACES.items():
        mark = " now" if each.value == state else ""
        body.append(f'<g class="state{mark}"><rect x="{x - 52}" y="{y - 16}" width="104" height="32" rx="8"/>')
        body.append(f'<text x="{x}" y="{y + 4}" text-anchor="middle">{escape(each.value.replace("_", " "))}</text></g>')
    label = escape(f"The lifecycle of a transaction; this one is {state}")
    return f'<svg viewBox="0 0 670 270" width="670" role="img" aria-label="{label}">{"".join(body)}</svg>'


def _arrow(source: tuple[int, int], target: tuple[int, int]) -> str:
    """Draw a move from the edge of one state to that of the other; above what lies between two of one row."""
    (x1, y1), (x2, y2) = source, target
    if y1 == y2 and abs(x2 - x1) > FAR:
        middle = (x1 + x2) / 2
        way = f"M{x1} {y1 - HIGH} Q{middle} {y1 - 56} {x2 - 20} {y2 - HIGH}"
    else:
        (ax, ay), (bx, by) = _edge(source, target), _edge(target, source)
        way = f"M{ax:.0f} {ay:.0f} L{bx:.0f} {by:.0f}"
    return f'<path class="move" marker-end="url(#tip)" d="{way}"/>'


def _edge(inside: tuple[int, int], outside: tuple[int, int]) -> tuple[float, float]:
    """Return where the line between two states leaves the first one."""
    (x, y), across, down = inside, outside[0] - inside[0], outside[1] - inside[1]
    part = min(WIDE / abs(across) if across else 9.0, HIGH / abs(down) if down else 9.0)
    return x + across * part, y + down * part
