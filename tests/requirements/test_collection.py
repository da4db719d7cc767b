"""`python -m tests.requirements` reads marks and names off real tests without running one."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

SAMPLE = """
import pytest

@pytest.mark.req("RMQ-03", "RMQ-13")
@pytest.mark.rule("R1")
def test_marked():
    raise RuntimeError("a collection runs nothing")

@pytest.mark.skip(reason="not yet")
@pytest.mark.req("RMQ-16")
def test_skipped(): ...

@pytest.mark.xfail(reason="broken")
@pytest.mark.req("RMQ-17")
def test_expected_to_fail(): ...

@pytest.mark.skipif(False, reason="elsewhere")
@pytest.mark.req("RMQ-18")
def test_skipped_elsewhere(): ...

@pytest.mark.skipif(True, reason="here")
@pytest.mark.req("RMQ-19")
def test_skipped_here(): ...

@pytest.mark.req("RMQ-20")
def test_gives_up():
    pytest.skip("always")

@pytest.mark.req("RMQ-22")
def test_may_give_up():
    if not ROOM:
        pytest.skip("no room")

class TestStore:
    pytestmark = pytest.mark.conf("BRK-07")
    def test_method(self): ...
"""

UNKNOWN = """
import pytest

@pytest.mark.req("RMQ-98")
def test_of_nothing(): ...
"""


def collected(folder: Path, source: str) -> "subprocess.CompletedProcess[str]":
    (folder / "test_sample.py").write_text(source)
    return subprocess.run(
        [sys.executable, "-m", "tests.requirements", "--tests", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> "subprocess.CompletedProcess[str]":
    return collected(tmp_path_factory.mktemp("sample"), SAMPLE)


def is_open(printed: str, row: str) -> bool:
    line = next(line for line in printed.splitlines() if line.split()[:1] == [row])
    return line.endswith("open")


@pytest.mark.parametrize("row", ["RMQ-03", "RMQ-13", "RMQ-18", "RMQ-22", "R1"])
def test_a_test_that_runs_shows_its_rows(sample: "subprocess.CompletedProcess[str]", row: str) -> None:
    assert not is_open(sample.stdout, row)


@pytest.mark.parametrize("row", ["RMQ-16", "RMQ-17", "RMQ-19", "RMQ-20"])
def test_a_test_that_does_not_run_shows_nothing(sample: "subprocess.CompletedProcess[str]", row: str) -> None:
    assert is_open(sample.stdout, row)


def test_a_mark_of_the_class_counts_for_its_tests(sample: "subprocess.CompletedProcess[str]") -> None:
    assert "Conformance cases: 1 of 157" in sample.stdout


def test_open_shipped_rows_are_named_and_fail_the_command(sample: "subprocess.CompletedProcess[str]") -> None:
    assert sample.returncode == 1
    assert "RMQ-16 is shipped and no test shows it" in sample.stderr


def test_an_unknown_id_is_named(tmp_path: Path) -> None:
    assert "test_of_nothing carries RMQ-98, which no list knows" in collected(tmp_path, UNKNOWN).stderr


def test_tests_that_cannot_be_imported_are_a_status_of_their_own(tmp_path: Path) -> None:
    done = collected(tmp_path, "import nothing_of_that_name\n")
    assert done.returncode == 2
    assert "nothing_of_that_name" in done.stderr
