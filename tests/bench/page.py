"""The page of the figures: one part for each workload, written from the documents of runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.report import cell
from tests.docs.parts import PART, filled

Document = Mapping[str, Any]
FIXED = ("case", "unit", "txsaga", "range", "baselines", "ratios")


class PageError(Exception):
    """What can't be written, and why."""


def read(files: Iterable[Path]) -> list[Document]:
    """Read what runs wrote by `--json`."""
    found: list[Document] = []
    for file in files:
        try:
            written = json.loads(file.read_text("utf-8"))
            documents = written if isinstance(written, list) else [written]
            incomplete = not all("conditions" in each for each in documents)
        except (OSError, ValueError, TypeError) as error:
            raise PageError(f"{file} is not a document of a run: {error}") from error
        if incomplete:
            raise PageError(f"{file} does not say how it was measured: run the workload again, with --json")
        found += documents
    return found


def write(page: Path, documents: Sequence[Document]) -> None:
    """Write the parts of these workloads; the others stay as they are."""
    try:
        text = page.read_text("utf-8")
    except OSError as error:
        raise PageError(f"{page} can't be read: {error.strerror}") from error
    by_name = groupby(sorted(documents, key=_name), _name)
    parts = {name: section(merged(list(runs))) for name, runs in by_name}
    missing = sorted(set(parts) - {part["name"] for part in PART.finditer(text)})
    if missing:
        raise PageError(f"{page} has no part <!-- generated: {missing[0]} -->")
    page.write_text(filled(text, parts), "utf-8")


def _name(document: Document) -> str:
    return str(document["workload"])


def merged(runs: Sequence[Document]) -> Document:
    """Make one document of several runs of a workload: the medians of their figures, the range of all."""
    for name in ("command", "machine", "versions"):
        if len(different := {run["conditions"][name] for run in runs}) > 1:
            raise PageError(
                f"runs of {_name(runs[0])} can't be merged, {name} differs: {' / '.join(sorted(different))}"
            )
    cases: dict[str, list[Document]] = {}
    for run in runs:
        for row in run["rows"]:
            cases.setdefault(row["case"], []).append(row)
    skipped = dict.fromkeys(line for run in runs for line in run["skipped"])
    rows = [{key: _merged(key, [row[key] for row in same]) for key in same[0]} for same in cases.values()]
    return {**runs[-1], "rows": rows, "skipped": list(skipped), "runs": len(runs)}


def _merged(key: str, values: Sequence[Any]) -> object:
    if key == "range":
        return [min(low for low, _ in values), max(high for _, high in values)]
    if isinstance(values[0], dict):
        return {name: median(each[name] for each in values) for name in values[0]}
    return values[0] if isinstance(values[0], str) else median(values)


def section(document: Document) -> str:
    """Say in Markdown what was measured, and how."""
    about, runs = document["conditions"], document.get("runs", 1)
    how = f"Measured on {about['date']} by `{about['command']}`{f', {runs} runs' if runs > 1 else ''}."
    parts = [f"{how} {about['machine']}. {about['versions']}."]
    if document["rows"]:
        parts.append(_table(document["rows"], document["unit"]))
    parts += [f"Left out: {line}." for line in document["skipped"]]
    return "\n\n".join(parts)


def _table(rows: Sequence[Document], unit: str) -> str:
    baselines = list(dict.fromkeys(name for row in rows for name in row["baselines"]))
    heads = ["case", f"txsaga ({unit})", "range", *(f"{name} (ratio)" for name in baselines), "further figures"]
    lines = [heads, ["---"] * len(heads), *(_cells(row, baselines) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(row: Document, baselines: Sequence[str]) -> Iterable[str]:
    yield row["case"]
    yield f"{cell(row['txsaga'])}{f' {unit}' if (unit := row.get('unit')) else ''}"
    yield cell(row["range"])
    for name in baselines:
        yield f"{cell(row['baselines'][name])} ({cell(row['ratios'][name])})" if name in row["baselines"] else "–"
    yield ", ".join(f"`{name}` {cell(value)}" for name, value in row.items() if name not in FIXED)
