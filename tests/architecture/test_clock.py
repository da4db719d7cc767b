"""Time, ids and randomness come in from outside: below the composition root nobody reads them."""

import re
from pathlib import Path

from tests.architecture.sources import PACKAGE, from_root, services

WALL_CLOCK = re.compile(
    r"\bdatetime\.(?:now|utcnow|today)\(|\bdate\.today\(|\bpendulum\.(?:now|today|yesterday|tomorrow)\("
    r"|\btime\.(?:time|time_ns|localtime|gmtime)\("
)
CHANCE = re.compile(r"\buuid\.?uuid[14678]\(|\buuid[14678]\(|\brandom\.\w+\(|\bsecrets\.\w+\(|\burandom\(")
BELOW = ("aio", "airflow_host", "embedded", "evidence", "lake", "messages", "resources", "store")
CLOCK = PACKAGE / "core" / "clock.py"


def uses(pattern: re.Pattern[str], path: Path) -> list[str]:
    """Return the lines of a file that match."""
    lines = enumerate(path.read_text("utf-8").splitlines(), start=1)
    return [f"{path.name}:{number}: {line.strip()}" for number, line in lines if pattern.search(line)]


def test_services_read_no_clock_and_draw_nothing_by_chance() -> None:
    found = {from_root(path): uses(WALL_CLOCK, path) + uses(CHANCE, path) for path in services() if path != CLOCK}
    assert not {path: lines for path, lines in found.items() if lines}


def test_only_the_clock_reads_the_wall_clock() -> None:
    others = sorted(path for part in BELOW for path in (PACKAGE / part).rglob("*.py"))
    assert not [line for path in others if path != CLOCK for line in uses(WALL_CLOCK, path)]


def test_a_clock_that_is_read_is_found(tmp_path: Path) -> None:
    source = tmp_path / "sample.py"
    source.write_text("a = datetime.now(UTC)\nb = time.monotonic()\nc = uuid4()\nd = pendulum.now('UTC')\n")
    assert [line.split(":")[1] for line in uses(WALL_CLOCK, source)] == ["1", "4"]
    assert [line.split(":")[1] for line in uses(CHANCE, source)] == ["3"]
