"""Time, ids and randomness come in from outside: below the composition root nobody reads them."""

import re
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGE, core_files, from_root

WALL_CLOCK = re.compile(
    r"\bdatetime\.(?:now|utcnow|today)\(|\bdate\.today\(|\bpendulum\.(?:now|today|yesterday|tomorrow)\("
    r"|\btime\.(?:time|time_ns|localtime|gmtime)\("
)
CHANCE = re.compile(r"\buuid\.?uuid[14678]\(|\buuid[14678]\(|\brandom\.\w+\(|\bsecrets\.\w+\(|\burandom\(")
CLOCK_ADAPTER = PACKAGE / "adapters" / "clock.py"


def uses(pattern: re.Pattern[str], path: Path) -> list[str]:
    """Return the lines of a file that match."""
    lines = enumerate(path.read_text("utf-8").splitlines(), start=1)
    return [f"{path.name}:{number}: {line.strip()}" for number, line in lines if pattern.search(line)]


@pytest.mark.parametrize("path", sorted(core_files()), ids=from_root)
def test_the_core_reads_no_clock_and_draws_nothing_by_chance(path: Path) -> None:
    assert not uses(WALL_CLOCK, path)
    assert not uses(CHANCE, path)


def test_only_the_clock_adapter_reads_the_wall_clock() -> None:
    adapters = sorted((PACKAGE / "adapters").rglob("*.py"))
    assert not [line for path in adapters if path != CLOCK_ADAPTER for line in uses(WALL_CLOCK, path)]


def test_a_clock_that_is_read_is_found(tmp_path: Path) -> None:
    source = tmp_path / "sample.py"
    source.write_text("a = datetime.now(UTC)\nb = time.monotonic()\nc = uuid4()\nd = pendulum.now('UTC')\n")
    assert [line.split(":")[1] for line in uses(WALL_CLOCK, source)] == ["1", "4"]
    assert [line.split(":")[1] for line in uses(CHANCE, source)] == ["3"]
