"""Whoever works in a folder may be killed at any line of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.tally import KILL_SEED
from tests.resources.files import dying, dying_sets

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.timeout(300)  # hundreds of processes, one after the other
@pytest.mark.rule("R9")
@pytest.mark.req("IBM-40")
@pytest.mark.parametrize("program", [dying.__name__, dying_sets.__name__])
def test_a_branch_in_a_folder_survives_a_kill_at_every_line(
    tmp_path: Path, program: str, pytestconfig: pytest.Config
) -> None:
    stride = 1 if pytestconfig.getoption("full_matrix") else 15
    first = 1 + int(os.environ[KILL_SEED]) % stride  # each run tries others
    command = [sys.executable, "-m", program, str(tmp_path / "reports"), str(first), str(stride)]
    died = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert died.returncode == 0, died.stderr
    lines = [int(line) for line in died.stdout.split()]
    assert len(lines) == 3
    assert min(lines) > 20
