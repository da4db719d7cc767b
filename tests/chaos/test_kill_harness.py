"""The kill harness itself: a process dies at the n-th fact of a name, and nowhere else."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.conftest import not_drawn
from txsaga.errors import ConfigError
from txsaga.testing.kill import FACTS, KILL, KillPoint, recorded, sample

pytestmark = pytest.mark.kill

# Announces Deciding and Decided three times, and says how far it came.
PROGRAM = """
import sys, txsaga.testing.kill
from txsaga.core.announcer import Announcer
from txsaga.core import facts
from txsaga.config import load
announce = Announcer([load(sys.argv[1], "observer")])
for turn in range(3):
    with announce.around(facts.Deciding):
        print(turn, end="", flush=True)
assert "pytest" not in sys.modules
"""


def run(observer: str, **env: str) -> tuple[int, str]:
    command = [sys.executable, "-c", PROGRAM, f"txsaga.testing.kill:{observer}"]
    done = subprocess.run(command, env=os.environ | env, stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("point", "came_to"), [("Deciding:1", ""), ("Decided:1", "0"), ("Deciding:2", "0"), ("Decided:3", "012")]
)
def test_a_process_is_killed_at_its_point(point: str, came_to: str) -> None:
    assert run("observer", **{KILL: point}) == (-signal.SIGKILL, came_to)


def test_a_point_that_is_never_reached_kills_nobody() -> None:
    assert run("observer", **{KILL: "Decided:4"}) == (0, "012")


def test_the_recorder_writes_every_point_in_its_order(tmp_path: Path) -> None:
    points = tmp_path / "points"
    assert run("recorder", **{FACTS: str(points)}) == (0, "012")
    assert [str(point) for point in recorded(points)] == [
        f"{fact}:{turn}" for turn in (1, 2, 3) for fact in ("Deciding", "Decided")
    ]


@pytest.mark.parametrize("text", ["Decided", "Decided:0", "Decided:x", "Landed:1", ""])
def test_what_is_no_point_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="write a fact and its count, like Decided:1"):
        KillPoint.parse(text)


def test_a_sample_is_the_same_for_the_same_seed_and_in_order() -> None:
    points = [KillPoint(fact="Decided", occurrence=n) for n in range(1, 101)]
    drawn = sample(points, 10, seed=7)
    assert drawn == sample(points, 10, seed=7) != sample(points, 10, seed=8)
    assert drawn == sorted(drawn, key=lambda point: point.occurrence)
    assert sample(points, 1000, seed=7) == points


def test_of_a_sampled_test_so_many_cases_are_run() -> None:
    cases = list("abcde")
    dropped = not_drawn(cases, share=2, seed=7)
    assert dropped == not_drawn(cases, share=2, seed=7) != not_drawn(cases, share=2, seed=8)
    assert len(dropped) == 3
    assert set(dropped) < set(cases)
    assert not_drawn(cases, share=9, seed=7) == []
