"""
Runs the mutations, each in a copy of package and tests, and prints which test catches it.

`python -m tests.mutants R7` runs those of one rule. First all their tests must pass in a copy without a fault. A mutant
is caught by a test that fails. An error outside of a test does not count, nor one that any change could cause, as a
name or a column that is not there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import cache_from_source
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from xml.etree import ElementTree

from tests.mutants.mutation import ROOT, RULES, Mutation, mutations

COPIED = ("txsaga", "tests", "examples", "dags", "plugins", "spark_jobs", "pyproject.toml", "README.md", "docs")
LIMIT = 300.0
"""Seconds for the tests of one mutation."""
BROKEN = re.compile(r"\b(SyntaxError|ImportError|ModuleNotFoundError|NameError|Undefined(Column|Table|Function))\b")


class Result(NamedTuple):
    """What became of a mutant."""

    mutation: Mutation
    verdict: str
    seconds: float
    told: str


@contextmanager
def copied() -> Iterator[Path]:
    """Give a copy of package and tests."""
    with TemporaryDirectory(prefix="txsaga-mutant-") as folder:
        root = Path(folder).resolve()
        for name in COPIED:
            place = ROOT / name
            if place.is_dir():
                shutil.copytree(place, root / name)
            elif place.exists():
                shutil.copy2(place, root / name)
        yield root


def environment(root: Path) -> dict[str, str]:
    """Return the environment in which every process imports the copy."""
    return os.environ | {"PYTHONPATH": str(root)}


def require_imported(root: Path) -> None:
    """Raise unless a child process imports the copy, wherever it runs."""
    script = "import txsaga; print(txsaga.__file__)"
    command = [sys.executable, "-c", script]
    said = subprocess.run(command, cwd="/", env=environment(root), capture_output=True, text=True, check=True).stdout
    if not Path(said.strip()).is_relative_to(root):
        raise SystemExit(f"the copy in {root} is not what is imported: {said}")


def run_tests(root: Path, tests: Sequence[str], *options: str, limit: float | None = None) -> tuple[int | None, str]:
    """Run tests in a copy; return the exit code of pytest, None if it took too long, and what it printed."""
    command = [sys.executable, "-m", "pytest", "-q", "--junitxml=report.xml", *options, *tests]
    try:
        done = subprocess.run(command, cwd=root, env=environment(root), capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return None, f"not done within {limit} s"
    return done.returncode, done.stdout + done.stderr


def judged(root: Path, code: int | None, printed: str) -> tuple[str, str]:
    """Return whether the mutant was caught, and by which test, or else what happened."""
    if code == 0:
        return "survived", ""
    if code != 1:
        return "broken", printed[-2000:]
    report = ElementTree.parse(root / "report.xml")
    for case in report.iter("testcase"):
        failure = case.find("failure")
        if failure is not None:
            why = failure.get("message") or ""
            return "broken" if BROKEN.search(why) else "caught", f"{case.get('name')}: {' '.join(why.split())[:160]}"
    return "broken", printed[-2000:]


def run_mutant(mutation: Mutation) -> Result:
    """Run the tests of one mutation in a copy that has it."""
    with copied() as root:
        mutation.apply(root)
        Path(cache_from_source(str(root / mutation.file))).unlink(missing_ok=True)
        require_imported(root)
        begun = time.monotonic()
        verdict, told = judged(root, *run_tests(root, mutation.tests, "-x", limit=LIMIT))
        return Result(mutation, verdict, time.monotonic() - begun, told)


def show(result: Result) -> None:
    """Print a row of the table."""
    print(f"{result.mutation.rule:4} {result.verdict:9} {result.seconds:5.0f} s  without {result.mutation.without}")
    print(f"{'':20}{result.told}", flush=True)


def control(chosen: Sequence[Mutation], jobs: int) -> None:
    """Exit unless every test of the mutations passes without a fault."""
    tests = sorted({test for each in chosen for test in each.tests})
    with copied() as root:
        require_imported(root)
        code, printed = run_tests(root, tests, "-n", str(jobs), "--dist", "loadfile")
        if code != 0:
            raise SystemExit(f"without a fault the tests must pass:\n{printed[-6000:]}")


def main(rules: Sequence[str]) -> int:
    """Run the mutations of the given rules, or all; return how many were not caught."""
    if unknown := set(rules) - set(RULES):
        raise SystemExit(f"{sorted(unknown)} is no rule; write some of {' '.join(RULES)}")
    chosen = [each for each in mutations() if not rules or each.rule in rules]
    jobs = int(os.environ.get("JOBS", "2"))
    begun = time.monotonic()
    control(chosen, jobs)
    left = 0
    with ThreadPoolExecutor(jobs) as pool:
        for result in pool.map(run_mutant, chosen):
            show(result)
            left += result.verdict != "caught"
    print(f"{len(chosen)} mutants, {left} not caught, {time.monotonic() - begun:.0f} s")
    return left


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
