"""Importing the core is free: nothing heavy is loaded and nothing runs. Judged by set, not by stopwatch."""

import subprocess
import sys

import pytest

from tests.architecture.sources import core_files, module_name

HEAVY = {
    "alembic",
    "psycopg",
    "rich",
    "sqlalchemy",
    "typer",
    "airflow",
    "fastapi",
    "great_expectations",
    "pandas",
    "prometheus_client",
    "pyarrow",
    "pydantic",
    "pyiceberg",
    "pyspark",
}

LOADED = "{name.partition('.')[0] for name in sys.modules}"
REPORT = f"import sys, threading; print(threading.active_count(), *{LOADED})"


@pytest.mark.parametrize("module", ["txsaga", *sorted(map(module_name, core_files()))])
def test_importing_the_core_loads_nothing_heavy_and_starts_no_thread(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import {module}; {REPORT}"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    threads, *loaded = done.stdout.split()
    assert sorted(HEAVY & set(loaded)) == []
    assert threads == "1"
