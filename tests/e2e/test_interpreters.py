"""In a clean environment of each supported Python the wheel brings what the command line and a first program need."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.cli.program import environment
from tests.provider.stranger import build
from tests.services.absent import ci_or_skip
from tests.services.embedded import temporary_home

pytestmark = [pytest.mark.slow, pytest.mark.postgres, pytest.mark.timeout(300)]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
SUPPORTED = [each.split()[-1] for each in PROJECT["classifiers"] if each.startswith("Programming Language :: Python")]
PROGRAM = """
import txsaga

with txsaga.connect() as broker:
    broker.create_topic("greetings", "transaction")
    with broker.producer("app").transaction(key="first") as tx:
        tx.send("greetings", text="hello")
    with broker.stream("readers", ["greetings"]) as reader:
        print(*(message.text() for message in reader.messages(wait=1)))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the wheel of this checkout."""
    if find_spec("hatchling") is None:
        ci_or_skip("hatchling, which builds the wheel,", "make venv")
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.mark.parametrize("version", SUPPORTED)
def test_the_wheel_works_in_a_clean_environment(wheel: Path, version: str) -> None:
    with temporary_home() as folder:
        python = created(folder / "venv", version)
        installed(wheel, python)
        command = python.with_name("txsaga")
        assert said(folder, command, "--version") == f"txsaga {PROJECT['version']}\n"
        assert said(folder, python, "-W", "error", "-c", PROGRAM) == "hello\n"


def test_the_versions_of_python_are_those_that_can_be_installed() -> None:
    first, last = SUPPORTED[0], int(SUPPORTED[-1].removeprefix("3."))
    assert PROJECT["requires-python"] == f">={first},<3.{last + 1}"


def created(folder: Path, version: str) -> Path:
    """Create an environment of this Python without pip, and return its interpreter."""
    program = shutil.which(f"python{version}")
    command = [str(program), "-m", "venv", "--without-pip", str(folder)]
    done = program and subprocess.run(command, env=environment(PYENV_VERSION=version), capture_output=True, text=True)
    if not done or done.returncode == 127:  # pyenv has a python3.12 on PATH also where it has none
        pytest.skip(f"Python {version} is not here: pyenv install {version}")
    assert done.returncode == 0, done.stderr
    return folder / "bin" / "python"


def installed(wheel: Path, python: Path) -> None:
    """Install the wheel with what it needs, as `make venv` does: by uv or by pip, each with its own settings."""
    if uv := shutil.which("uv"):
        command = [uv, "pip", "install", "--quiet", "--python", str(python)]
    else:
        command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-compile"]
    command += ["--constraint", str(ROOT / ".ci" / "constraints.txt"), str(wheel)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=240)
    if "from versions: none" in done.stderr:  # pip reaches no registry at all
        ci_or_skip("a registry of packages", "make venv, which says what is wrong")
    assert done.returncode == 0, done.stderr


def said(folder: Path, *command: str | Path) -> str:
    """Return the output of a program that knows nothing of this checkout."""
    env = environment(TXSAGA_PG_HOME=str(folder / "pg"), PYTHONPATH="", PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run([*map(str, command)], cwd=folder, env=env, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
