"""A full disk: one line, and every row is there when there is room again."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.embedded.callers import NEEDS_ROOT
from tests.services.embedded import temporary_home

pytestmark = [pytest.mark.postgres, NEEDS_ROOT]
PROJECT = Path(__file__).parents[3]


@pytest.fixture(autouse=True, scope="module")
def a_mount_namespace() -> None:
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not here: apt-get install -y util-linux")
    tried = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True)
    if tried.returncode:
        pytest.skip(f"nothing can be mounted here: {tried.stderr.decode().strip()}")


def played(scene: str) -> dict[str, object]:
    with temporary_home() as folder:
        python = [sys.executable, "-W", "error", "-m", "tests.embedded.disk"]
        command = ["unshare", "-m", *python, scene, str(folder / "disk")]
        done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told: dict[str, object] = json.loads(done.stdout)
    return told


def is_the_line_about_the_disk(line: object) -> bool:
    text = str(line)
    return text.startswith("the disk below") and "free some space" in text and "\n" not in text


def test_no_room_for_a_first_start_leaves_no_half_data_folder() -> None:
    told = played("first_start")
    assert is_the_line_about_the_disk(told["line"]), told
    assert told["left"] == []


@pytest.mark.parametrize("scene", ["later_start", "move_to_another_port", "running_server"])
def test_no_room_for_a_start_loses_nothing(scene: str) -> None:
    told = played(scene)
    assert is_the_line_about_the_disk(told["line"]), told
    assert told["rows"] == [[42]]
