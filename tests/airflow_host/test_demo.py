"""The demonstration: three transfers as runs of a DAG, one of them killed, and no cent lost."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.airflow_host.hosts import settings
from tests.services.embedded import temporary_home
from txsaga.airflow_host import processes
from txsaga.airflow_host.home import AirflowHome

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def env() -> Iterator[dict[str, str]]:
    """Give an environment with homes of its own; what runs there is stopped."""
    with temporary_home() as pg_home:
        folder = Path(tempfile.mkdtemp(prefix="txsaga-airflow-"))
        env = settings(pg_home, folder)
        try:
            yield env
        finally:
            subprocess.run([sys.executable, "-m", "txsaga.cli", "airflow", "down"], env=env, check=True, timeout=60)
            processes.end(AirflowHome(root=folder), patience=1)
            shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.req("CARD-01")
def test_the_demo_shows_a_commit_a_rollback_and_a_kill(env: dict[str, str]) -> None:
    demo: list[str | Path] = [sys.executable, ROOT / "examples" / "airflow_demo.py"]
    done = subprocess.run(demo, env=env | {"COLUMNS": "160"}, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "A good transfer: run success" in done.stdout
    assert "nothing else: run failed" in done.stdout
    assert "middle of the debit: run failed" in done.stdout
    assert "went for fees: one transfer of three is there" in done.stdout
    assert "http://127.0.0.1:" in done.stdout
