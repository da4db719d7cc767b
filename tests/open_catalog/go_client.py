"""Running Iceberg's Go client, as published: `.ci/clients` builds the program in `clients`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.services.absent import ci_or_skip

PROGRAM = Path(__file__).parents[2] / ".clients" / "iceberg-go"


def run_go(address: str, credential: str) -> dict[str, str]:
    """Run the client; return what it says."""
    if not PROGRAM.exists():
        line = "run .ci/clients, which needs Go"
        if shutil.which("go"):
            ci_or_skip("Iceberg's Go client", line)
        pytest.skip(f"this client needs Go, which is not installed: {line}")
    done = subprocess.run([PROGRAM, address, credential], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return dict(line.split("\t", 1) for line in done.stdout.splitlines())
