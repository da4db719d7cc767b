"""`python -m tests.bench [W1 …] [--seconds N] [--rounds N] [--json FILE] [--page FILE] [--from FILE …]`."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.bench.conditions import conditions, version
from tests.bench.home import Home, home
from tests.bench.page import Document, PageError, read, write
from tests.bench.report import Row, absent, cell
from tests.bench.workloads import TIMES, WORKLOADS
from txsaga.errors import LakeMissing

SIZES = ("TXSAGA_BENCH_ROWS", "TXSAGA_BENCH_COMMITS")


def main() -> None:
    """Run workloads and print them; write what they say, after each, for it takes long until all are over."""
    parser, chosen = _parsed()
    try:
        earlier = read(chosen.earlier)
        _write(chosen, [], earlier)
        if chosen.workloads:
            _measure(chosen, earlier)
    except PageError as error:
        parser.error(str(error))


def _parsed() -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="all by default; none with --from")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="alternating rounds")
    parser.add_argument("--history", type=int, default=1_000_000, help="settled transactions of W8")
    parser.add_argument("--peers", type=int, default=0, help="transactions that a slow peer recovers in W3; 0: none")
    parser.add_argument("--json", type=Path, help="write the documents to this file")
    parser.add_argument("--page", type=Path, help="write the figures into this page")
    parser.add_argument(
        "--from", type=Path, nargs="+", default=[], dest="earlier", metavar="FILE", help="add earlier runs to the page"
    )
    chosen = parser.parse_args()
    if unknown := set(chosen.workloads) - set(WORKLOADS):
        parser.error(f"no workload {', '.join(sorted(unknown))}; there are {', '.join(WORKLOADS)}")
    if chosen.earlier and not chosen.page:
        parser.error("--from takes --page: the page that the earlier runs are written into")
    if not chosen.earlier:
        chosen.workloads = chosen.workloads or list(WORKLOADS)
    return parser, chosen


def _measure(chosen: argparse.Namespace, earlier: list[Document]) -> None:
    documents: list[Document] = []
    with home() as server:
        for name in chosen.workloads:
            documents.append(_run(server, name, chosen))
            _print(documents[-1])
            _write(chosen, documents, earlier)


def _write(chosen: argparse.Namespace, documents: list[Document], earlier: list[Document]) -> None:
    if chosen.json and documents:
        chosen.json.write_text(json.dumps(documents[0] if len(documents) == 1 else documents, indent=1))
    if chosen.page:
        write(chosen.page, [*earlier, *documents])


def _run(server: Home, name: str, chosen: argparse.Namespace) -> Document:
    workload = WORKLOADS[name]
    options: Mapping[str, int] = {"W8": {"history": chosen.history}, "W3": {"peers": chosen.peers}}.get(name, {})
    rows, skipped = list[Row](), [absent(each, "make venv") for each in workload.needs if version(each) is None]
    try:
        for module in () if skipped else workload.modules:
            run = import_module(f"tests.bench.{module}").run
            found, left_out = run(server, chosen.seconds, chosen.rounds, **options)
            rows, skipped = rows + found, skipped + left_out
    except LakeMissing as missing:  # Spark's Java, or a jar
        skipped.append(str(missing))
    return {
        "workload": name,
        "unit": workload.unit,
        "conditions": conditions(server, _command(name, chosen, options), workload.needs),
        "rows": [row.document(smaller_is_better=(row.unit or workload.unit) in TIMES) for row in rows],
        "skipped": skipped,
    }


def _command(name: str, chosen: argparse.Namespace, options: Mapping[str, int]) -> str:
    """Return what measures the same again."""
    sizes = "".join(f"{size}={os.environ[size]} " for size in SIZES if size in os.environ)
    words = "".join(f" --{option} {value}" for option, value in options.items() if value)
    return f'{sizes}make bench ARGS="{name} --seconds {chosen.seconds:g} --rounds {chosen.rounds}{words}"'


def _print(document: Document) -> None:
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    table = Table(title=f"{document['workload']} ({document['unit']}; {os.cpu_count()} cores, load {load})")
    rows: list[dict[str, Any]] = document["rows"]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*(cell(row.get(column, "")) for column in columns))
    console = Console(width=160)
    if rows:
        console.print(table)
    for line in document["skipped"]:
        console.print(f"{document['workload']} skipped: {line}", markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
