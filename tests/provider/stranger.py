"""
A stranger's Airflow: a Python environment and a home of their own, the wheel of this project, and nothing else of it.

What the wheel does not hold is not there, and no folder of this checkout is where that Python looks for modules: other
packages are links to those that are installed here, all but this project and what leads to its sources.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cli.program import environment

ROOT = Path(__file__).parents[2]
PACKAGE = "txsaga"
TIMEOUT = 180.0


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


def inside(place: str | os.PathLike[str], folder: Path) -> bool:
    """Tell whether a place lies in a folder."""
    return Path(place).resolve().is_relative_to(folder.resolve())
