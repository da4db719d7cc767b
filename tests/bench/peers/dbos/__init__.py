"""DBOS, run beside us on the same PostgreSQL: the same steps as a workflow, in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests.bench.home import Home

PROGRAM = Path(__file__).with_name("program.py")
TABLES = "CREATE TABLE IF NOT EXISTS booking(v bigint, n int); CREATE TABLE IF NOT EXISTS undone(v bigint, n int)"


def built() -> Path | None:
    """Return the interpreter that has the peer: TXSAGA_DBOS, made by `tests/bench/peers/dbos/build FOLDER`."""
    folder = Path(os.environ.get("TXSAGA_DBOS", Path.home() / ".cache" / "txsaga-bench" / "dbos"))
    python = folder / "bin" / "python"
    return python if python.exists() else None


def rate(home: Home, python: Path, case: str, callers: int, seconds: float) -> float:
    """Run workflows from so many threads; return how many came to their end per second."""
    home.server.database("dbos").database("dbos_work")
    home.execute(TABLES, "dbos_work")
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env |= {"SYSTEM_URL": home.url("dbos"), "WORK_URL": home.url("dbos_work", None)}
    command = [str(python), str(PROGRAM), case, str(callers), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300 + 10 * seconds, env=env)
    if done.returncode:
        raise RuntimeError(f"dbos failed: {done.stderr[-500:]}")
    return float(json.loads(done.stdout.splitlines()[-1]))
