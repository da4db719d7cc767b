"""`python -m tests.bench [W1 …] [--seconds N] [--rounds N] [--history N] [--peers N] [--json FILE]`."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.bench import w1, w1b, w1c, w1d, w1d_work, w1l, w2, w2r, w3, w6, w8
from tests.bench.home import Home, home
from tests.bench.report import Row

Run = Callable[..., tuple[list[Row], list[str]]]


def _w1d(server: Home, seconds: float, rounds: int) -> tuple[list[Row], list[str]]:
    (rows, skipped), (more, others) = w1d.run(server, seconds, rounds), w1d_work.run(server, seconds, rounds)
    return rows + more, skipped + others


def _w4(server: Home, seconds: float, rounds: int) -> tuple[list[Row], list[str]]:
    from tests.bench import w4  # it takes Spark, which the others do without

    return w4.run(server, seconds, rounds)


def _w4g(server: Home, seconds: float, rounds: int) -> tuple[list[Row], list[str]]:
    from tests.bench import w4g  # it takes Arrow

    return w4g.run(server, seconds, rounds)


def _w5(server: Home, seconds: float, rounds: int) -> tuple[list[Row], list[str]]:
    from tests.bench import w5  # it takes Airflow

    return w5.run(server, seconds, rounds)


def _w7(server: Home, seconds: float, rounds: int) -> tuple[list[Row], list[str]]:
    from tests.bench import w7  # it takes Spark

    return w7.run(server, seconds, rounds)


WORKLOADS: dict[str, tuple[str, Run, bool]] = {
    "W1": ("tx/s", w1.run, False),
    "W1L": ("tx/s", w1l.run, False),
    "W1b": ("messages/s", w1b.run, False),
    "W1c": ("ms", w1c.run, True),
    "W1d": ("messages/s", _w1d, False),
    "W2": ("tx/s", w2.run, False),
    "W2r": ("s", w2r.run, True),
    "W3": ("s", w3.run, True),
    "W4": ("s", _w4, True),
    "W4g": ("s", _w4g, True),
    "W5": ("s", _w5, True),
    "W6": ("sagas/s", w6.run, False),
    "W7": ("s", _w7, True),
    "W8": ("tx/s", w8.run, False),
}


def main() -> None:
    """Run workloads and print them."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS), metavar="WORKLOAD")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="alternating rounds")
    parser.add_argument("--history", type=int, default=1_000_000, help="settled transactions of W8")
    parser.add_argument("--peers", type=int, default=0, help="transactions that a slow peer recovers in W3; 0: none")
    parser.add_argument("--json", type=Path, help="write the document to this file")
    chosen = parser.parse_args()
    unknown = set(chosen.workloads) - set(WORKLOADS)
    if unknown:
        parser.error(f"no workload {', '.join(sorted(unknown))}; there are {', '.join(WORKLOADS)}")
    documents = []
    with home() as server:
        for name in chosen.workloads:
            documents.append(_run(server, name, chosen))
            _print(documents[-1])
    if chosen.json:
        chosen.json.write_text(json.dumps(documents[0] if len(documents) == 1 else documents, indent=1))


def _run(server: Home, name: str, chosen: argparse.Namespace) -> dict[str, Any]:
    unit, run, smaller = WORKLOADS[name]
    options = {"W8": {"history": chosen.history}, "W3": {"peers": chosen.peers}}.get(name, {})
    rows, skipped = run(server, chosen.seconds, chosen.rounds, **options)
    return {
        "workload": name,
        "unit": unit,
        "rows": [row.document(smaller_is_better=smaller) for row in rows],
        "skipped": skipped,
    }


def _print(document: dict[str, Any]) -> None:
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    table = Table(title=f"{document['workload']} ({document['unit']}; {os.cpu_count()} cores, load {load})")
    columns = list(dict.fromkeys(key for row in document["rows"] for key in row))
    for column in columns:
        table.add_column(column)
    for row in document["rows"]:
        table.add_row(*(_cell(row.get(column, "")) for column in columns))
    console = Console(width=160)
    console.print(table)
    if document["skipped"]:
        console.print(f"not installed, left out: {', '.join(document['skipped'])}")


def _cell(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_cell(figure)}" for name, figure in value.items())
    if isinstance(value, list):
        return " – ".join(_cell(figure) for figure in value)
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
    return str(value)


if __name__ == "__main__":
    main()
