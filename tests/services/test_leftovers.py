"""A process that outlives the tests is found, also one that has left its parent."""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.leftovers import MARK, Leftover, kill, leftovers, wait_for_none

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

ROOT = Path(__file__).parents[2]
DETACH = "import subprocess, sys; print(subprocess.Popen(sys.argv[1:], start_new_session=True, stdout=2).pid)"
LEAVES = f"""
import subprocess, sys

def test_leaves():
    subprocess.run([sys.executable, "-c", {DETACH!r}, "sleep", "61"])
"""


def besides_services(token: str) -> list[Leftover]:
    """What a session has left, without the services that this very session keeps running."""
    kept = {left.pid for left in leftovers("nobody's")}
    return [left for left in leftovers(token) if left.pid not in kept]


@pytest.fixture
def orphan() -> Iterator[tuple[str, int]]:
    token = secrets.token_hex(8)
    parent = subprocess.run(
        [sys.executable, "-c", DETACH, "sleep", "60"],
        env=os.environ | {MARK: token},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    pid = int(parent.stdout)
    until = time.monotonic() + 20
    while not Path(f"/proc/{pid}/environ").read_bytes():  # on a busy machine its environment comes behind its program
        assert time.monotonic() < until, "the orphan did not begin"
        time.sleep(0.01)
    yield token, pid
    if any(left.pid == pid for left in leftovers(token)):
        os.kill(pid, signal.SIGKILL)


def test_a_process_that_left_its_parent_is_found_by_its_mark(orphan: tuple[str, int]) -> None:
    token, pid = orphan
    assert [(left.pid, left.command) for left in besides_services(token)] == [(pid, "sleep 60")]


def test_a_process_of_another_session_is_left_alone(orphan: tuple[str, int]) -> None:
    _, pid = orphan
    assert pid not in {left.pid for left in leftovers("another")}


@pytest.mark.slow
def test_what_was_left_is_ended(orphan: tuple[str, int]) -> None:
    token, pid = orphan
    kill(besides_services(token))
    assert pid not in {left.pid for left in wait_for_none(token)}


@pytest.mark.slow
def test_a_session_that_leaves_a_process_fails_and_names_it(tmp_path: Path) -> None:
    sample = tmp_path / "test_sample.py"
    sample.write_text(LEAVES)
    environment = {name: value for name, value in os.environ.items() if name != MARK}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.conftest",
        "--rootdir",
        str(tmp_path),
        str(sample),
    ]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert "1 passed" in done.stdout
    assert "left running by a test" in done.stdout
    assert "sleep 61" in done.stdout
