"""
A stranger's Airflow: a Python environment and a home of their own, the wheel of this project, and nothing else of it.

What the wheel does not hold is not there, and no folder of this checkout is where that Python looks for modules: other
packages are links to those that are installed here, all but this project and what leads to its sources.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cli.program import environment
from tests.services.absent import ci_or_skip

ROOT = Path(__file__).parents[2]
PACKAGE = "txsaga"
TIMEOUT = 180.0
SUPPORTED = ("python3.11", "python3.12")
UNREACHED = "Failed to establish a new connection"
"""What pip writes where there is no index of packages; uv has other words, and is not used here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stranger:
    """Somebody who has installed the wheel."""

    python: Path
    site: Path
    home: Path
    env: Mapping[str, str]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Call their Python, in their folder."""
        command = [str(self.python), *words]
        return subprocess.run(
            command, cwd=self.home, env=dict(self.env), capture_output=True, text=True, timeout=TIMEOUT
        )

    def dag(self, name: str, text: str) -> None:
        """Write a DAG file of theirs."""
        folder = self.home / "dags"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(text, "utf-8")


def build(folder: Path) -> Path:
    """Build the wheel of this checkout."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = folder.glob("*.whl")
    return made


def settle(wheel: Path, folder: Path, said: Mapping[str, str]) -> Stranger:
    """Install a wheel into an environment of its own."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder / "venv")
    (site,) = (folder / "venv").glob("lib/python3*/site-packages")
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if PACKAGE not in each.name and each.suffix != ".pth":
            (site / each.name).symlink_to(each)
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    home = folder / "airflow"
    home.mkdir()
    kept = {name: value for name, value in environment().items() if not name.startswith(("AIRFLOW", "PYTHON"))}
    env = kept | {"AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"} | dict(said)
    return Stranger(python=folder / "venv" / "bin" / "python", site=site, home=home, env=env)


def pythons() -> list[str]:
    """Return the supported Pythons on PATH, those left out that are only a version manager's name."""
    there = [name for name in SUPPORTED if shutil.which(name)]
    return [name for name in there if not subprocess.run([name, "-c", ""], capture_output=True).returncode]


def alone(wheel: Path, python: str, folder: Path) -> Path:
    """Install a wheel, with what it needs and nothing else, into an environment of a Python; return the command."""
    subprocess.run([python, "-m", "venv", folder], check=True, capture_output=True, timeout=TIMEOUT)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    words = ["--constraint", ROOT / ".ci" / "constraints.txt", wheel]
    done = subprocess.run([*pip, *words], capture_output=True, text=True, timeout=TIMEOUT)
    if done.returncode and UNREACHED in done.stderr:
        ci_or_skip("an index of packages", "set PIP_INDEX_URL")
    assert done.returncode == 0, done.stderr[-4000:]
    return folder / "bin" / "txsaga"


def inside(place: str | os.PathLike[str], folder: Path) -> bool:
    """Tell whether a place lies in a folder."""
    return Path(place).resolve().is_relative_to(folder.resolve())
