"""The page of the figures says what runs measured, and what could not be measured."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench import w2, w3
from tests.bench.__main__ import main
from tests.bench.home import Home
from tests.bench.page import PageError, merged, read, section, write
from tests.bench.peers import dbos, dtm, restate, unbuilt
from tests.bench.report import Row, alternate
from tests.bench.workloads import WORKLOADS, Workload
from tests.services.mariadb import INSTALL_LINE
from txsaga.embedded.server import EmbeddedServer

PAGE = "# Performance\nby hand\n<!-- generated: W1 -->\nold\n<!-- end -->\n<!-- generated: W3 -->\nkept\n<!-- end -->\n"


def run(*ours: float, command: str = "make bench ARGS=W1", skipped: tuple[str, ...] = ()) -> dict[str, Any]:
    """Make the document of a run of W1."""
    row = Row("1 caller", list(ours), {"dtm": [each / 2 for each in ours]}, {"p99_ms": [7.0] * len(ours)})
    how = {"date": "2026-01-02", "command": command, "machine": "Chip, 2 cores", "versions": "Python 3"}
    rows = [row.document(smaller_is_better=False)]
    return {"workload": "W1", "unit": "tx/s", "conditions": how, "rows": rows, "skipped": list(skipped)}


def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """Call the benchmark with words that it refuses; return its last line."""
    monkeypatch.setattr(sys, "argv", ["bench", *map(str, words)])
    with pytest.raises(SystemExit, match="2"):
        main()
    return capsys.readouterr().err.splitlines()[-1]


def test_a_run_replaces_the_parts_that_it_measured(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    write(page, [run(1000, 1200, 1100, skipped=("pgbench is not installed; install it with: x",))])
    text = page.read_text()
    assert "| 1 caller | 1,100 | 1,000 – 1,200 | 550 (2) | `p99_ms` 7 |" in text
    assert "Measured on 2026-01-02 by `make bench ARGS=W1`. Chip, 2 cores. Python 3." in text
    assert "Left out: pgbench is not installed; install it with: x." in text
    assert "old" not in text and "by hand" in text and "kept" in text


def test_several_runs_become_one_with_the_range_of_all(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(run(10, 30)))
    (tmp_path / "b.json").write_text(json.dumps([run(40, 80)]))
    found = merged(read([tmp_path / "a.json", tmp_path / "b.json"]))
    (row,) = found["rows"]
    assert (row["txsaga"], row["range"], row["baselines"], row["ratios"]) == (40, [10, 80], {"dtm": 20}, {"dtm": 2})
    assert "`make bench ARGS=W1`, 2 runs." in section(found)


def test_runs_of_different_commands_are_not_merged() -> None:
    with pytest.raises(PageError, match=r"command differs: .*W1 / .*--seconds 9"):
        merged([run(1), run(2, command="make bench ARGS=W1 --seconds 9")])


@pytest.mark.parametrize(
    ("text", "why"), [("{}", "does not say how it was measured"), ("", "is not a document"), (None, "No such file")]
)
def test_a_document_that_says_too_little_is_refused_in_a_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str | None,
    why: str,
) -> None:
    page, document = tmp_path / "page.md", tmp_path / "a.json"
    page.write_text(PAGE)
    if text is not None:
        document.write_text(text)
    assert why in refused(monkeypatch, capsys, "--page", page, "--from", document)
    assert page.read_text() == PAGE


def test_a_page_without_the_part_or_not_there_is_refused_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document, empty = tmp_path / "a.json", tmp_path / "empty.md"
    document.write_text(json.dumps(run(1)))
    empty.write_text("# Nothing\n")
    assert "no part <!-- generated: W1 -->" in refused(monkeypatch, capsys, "--page", empty, "--from", document)
    assert "can't be read" in refused(monkeypatch, capsys, "W1", "--page", tmp_path / "none.md")


def test_a_mariadb_that_is_not_installed_is_left_out_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CI", "true")
    rows, skipped = w2.with_mariadb(Home(EmbeddedServer(home=tmp_path)), 1, 1)
    assert (rows, skipped) == ([], [f"MariaDB is not installed; install it with: {INSTALL_LINE}"])


def test_peers_that_are_not_built_are_left_out_with_their_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DTM", "DBOS", "RESTATE"):
        monkeypatch.setenv(f"TXSAGA_{name}", str(tmp_path))
    lines = unbuilt({"dtm": dtm.built(), "dbos": dbos.built(), "restate": restate.built()})
    assert len(lines) == 3
    for line in lines:
        assert Path(line.split()[-2]).is_file(), line


def test_a_case_that_takes_long_gets_fewer_rounds_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(w3, "LONGEST", -1)
    skipped: list[str] = []
    assert w3._within(skipped, "fenced", 3, lambda: {"txsaga": 1.0}).ours == [1.0]
    assert skipped == ["fenced: cut short after 1 of 3 rounds, which took -1 s or more"]
    assert alternate("fenced", 3, lambda: 1.0, {}, within=60).ours == [1.0] * 3


@pytest.mark.slow
@pytest.mark.postgres
def test_a_workload_whose_package_is_missing_is_left_out_and_the_rest_runs_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page, document = tmp_path / "page.md", tmp_path / "run.json"
    page.write_text("".join(f"<!-- generated: {name} -->\n<!-- end -->\n" for name in ("W4", "W1b")))
    monkeypatch.setitem(WORKLOADS, "W4", Workload("s", ("w4",), ("no-such-package",)))
    words = ["W4", "W1b", "--rounds", "1", "--page", str(page), "--json", str(document)]
    monkeypatch.setattr(sys, "argv", ["bench", *words])
    main()
    line = "no-such-package is not installed; install it with: make venv"
    assert f"W4 skipped: {line}" in capsys.readouterr().out
    assert [each["skipped"] for each in read([document])] == [[line], []]
    text = page.read_text()
    assert f"Left out: {line}." in text and "| 10000 messages |" in text and "PostgreSQL 1" in text
    assert platform.node() not in text
