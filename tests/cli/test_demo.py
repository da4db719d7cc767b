"""`txsaga demo` as its user runs it: a process of its own, twice, in a home that nothing has prepared."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.cli.program import COMMAND, environment
from tests.services.embedded import temporary_home
from txsaga.embedded.server import EmbeddedServer

ROOT = Path(__file__).parents[2]
MOMENTS = [
    ("before", "100.00", "0.00", "none"),
    ("after", "75.00", "25.00", "25.00 from Anna to Bert"),
    ("before", "75.00", "25.00", "none"),
    ("after kill -9", "75.00", "25.00", "hidden"),
    ("after recovery", "75.00", "25.00", "dropped"),
    ("before", "75.00", "25.00", "none"),
    ("after kill -9", "75.00", "25.00", "hidden"),
    ("after recovery", "50.00", "50.00", "25.00 from Anna to Bert"),
]
LOADED = re.compile(r"https?:|<script|<link|@import|url\(|src=")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.postgres
@pytest.mark.req("RMQ-01")
def test_the_demo_shows_two_kills_and_their_recovery_and_runs_again(tmp_path: Path) -> None:
    with temporary_home() as folder:
        for html in (tmp_path / "first.html", tmp_path / "second.html"):
            env = environment(TXSAGA_PG_HOME=str(folder / "pg"))
            words = [*COMMAND, "demo", "--no-browser", "--html", str(html)]
            said = subprocess.run(words, env=env, capture_output=True, text=True, timeout=150)
            assert (said.returncode, said.stderr) == (0, "")
            lines = said.stdout.splitlines()
            assert moments(lines) == MOMENTS
            assert f"page    {html.as_uri()}" in lines
            assert_is_drawn(html.read_text("utf-8"))
        assert [each.name for each in folder.iterdir()] == ["pg-demo"]
        assert not EmbeddedServer(home=folder / "pg-demo").status().running


def moments(lines: list[str]) -> list[tuple[str, ...]]:
    """Return the rows of the printed tables."""
    rows = (tuple(re.split(r"  +", line)) for line in lines)
    return [row for row in rows if len(row) == 4 and row[0].startswith(("before", "after"))]


def assert_is_drawn(page: str) -> None:
    """See that the page has a picture of each transfer, with what was killed and what became visible."""
    _, *pictures = page.split("<svg")
    assert len(pictures) == 3
    assert ['class="mark kill"' in each for each in pictures] == [False, True, True]
    assert ['class="visible"' in each for each in pictures] == [True, False, True]
    assert all('class="mark decision"' in each and 'class="hidden"' in each for each in pictures)
    assert ["<td>ROLLBACK" in each for each in pictures] == [False, True, False]
    assert ["sealed by its owner" in each for each in pictures] == [True, False, True]
    assert not LOADED.search(page)


@pytest.mark.parametrize("words", [("--url", "postgresql://h/d"), ("--namespace", "n"), ("--json",)])
def test_what_would_lead_to_another_store_is_refused(bare: Cli, words: tuple[str, ...]) -> None:
    said = bare("demo", *words)
    assert (said.code, said.out) == (3, "")
    assert "leave out --url, --namespace and --json" in said.complaint


def test_the_dag_needs_a_checkout_and_airflow(bare: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "airflow", None)  # as if it were not installed
    monkeypatch.chdir(ROOT)
    assert "pip install 'txsaga[airflow]'" in refused(bare)
    monkeypatch.chdir(tmp_path)
    assert "run it in a checkout of txsaga" in refused(bare)


def refused(bare: Cli) -> str:
    """Return the line with which the DAG is refused."""
    said = bare("demo", "--airflow")
    assert (said.code, said.out) == (3, "")
    return said.complaint
