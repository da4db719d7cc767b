"""Importing the services is free: nothing heavy is loaded and nothing runs. Judged by set, not by stopwatch."""

import subprocess
import sys

from tests.architecture.sources import module_name, services

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


def loaded_by(*modules: str) -> tuple[int, set[str]]:
    """Import modules in a new process; return how many threads it has then, and what is loaded."""
    script = "\n".join([*(f"import {module}" for module in modules), REPORT])
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    threads, *loaded = done.stdout.split()
    return int(threads), set(loaded)


def test_importing_the_package_loads_nothing_heavy_and_starts_no_thread() -> None:
    threads, loaded = loaded_by("txsaga")
    assert (threads, HEAVY & loaded) == (1, set())


def test_importing_every_service_loads_nothing_heavy_and_starts_no_thread() -> None:
    threads, loaded = loaded_by(*sorted(map(module_name, services())))
    assert (threads, HEAVY & loaded) == (1, set())
