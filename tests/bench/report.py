"""One document per workload: cases, medians of alternating rounds, ratios to each baseline."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Measure = Callable[[], "float | Mapping[str, float]"]


@dataclass
class Row:
    """One case: ours, the baselines and further figures."""

    case: str
    ours: list[float] = field(default_factory=list)
    baselines: dict[str, list[float]] = field(default_factory=dict)
    extra: dict[str, list[float]] = field(default_factory=dict)
    unit: str = ""  # if it is not the workload's

    def add(self, figures: float | Mapping[str, float]) -> None:
        if isinstance(figures, Mapping):
            self.ours.append(figures["txsaga"])
            for name, value in figures.items():
                if name != "txsaga":
                    self.extra.setdefault(name, []).append(value)
        else:
            self.ours.append(figures)

    def document(self, *, smaller_is_better: bool) -> dict[str, object]:
        ours = statistics.median(self.ours)
        baselines = {name: statistics.median(values) for name, values in self.baselines.items()}
        return {
            "case": self.case,
            **({"unit": self.unit} if self.unit else {}),
            "txsaga": round(ours, 3),
            "baselines": {name: round(value, 3) for name, value in baselines.items()},
            "ratios": {
                name: round(_ratio(self.ours, values, smaller_is_better), 3) for name, values in self.baselines.items()
            },
            **{name: round(statistics.median(values), 3) for name, values in self.extra.items()},
            "range": [round(min(self.ours), 3), round(max(self.ours), 3)],
        }


def _ratio(ours: Sequence[float], theirs: Sequence[float], smaller_is_better: bool) -> float:
    """The median of the paired ratios: neighbours in time share the machine's mood."""
    pairs = zip(ours, theirs, strict=True)
    return statistics.median(b / a if smaller_is_better else a / b for a, b in pairs)


def alternate(
    case: str,
    rounds: int,
    ours: Measure,
    baselines: Mapping[str, Callable[[], float]],
    *,
    unit: str = "",
    within: float = math.inf,
) -> Row:
    """Measure ours and every baseline in turn, `rounds` times; no round but the first begins after `within` seconds."""
    row, started = Row(case, baselines={name: [] for name in baselines}, unit=unit), time.monotonic()
    for turn in range(rounds):
        if turn and time.monotonic() - started > within:
            break
        order = list(baselines)
        for name in order if turn % 2 else []:
            row.baselines[name].append(baselines[name]())
        row.add(ours())
        for name in order if not turn % 2 else []:
            row.baselines[name].append(baselines[name]())
    return row


def absent(what: str, command: str) -> str:
    """Say why something is not measured."""
    return f"{what} is not installed; install it with: {command}"


def cell(value: object) -> str:
    """Write a figure, or several, with three digits at least."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {cell(figure)}" for name, figure in value.items())
    if isinstance(value, list):
        return " – ".join(map(cell, value))
    if isinstance(value, float | int):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value)
