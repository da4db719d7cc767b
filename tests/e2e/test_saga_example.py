"""The example of a saga: a trip that goes well, one that fails, one that is killed half way."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services.embedded import temporary_home
from txsaga.embedded.server import EmbeddedServer

pytestmark = [pytest.mark.postgres, pytest.mark.req("CARD-06")]

EXAMPLE = Path(__file__).parents[2] / "examples" / "saga_travel.py"
MOMENTS = [
    ("before", [1_000, 5, 1]),
    ("booked", [700, 4, 0]),
    ("no seat: undone", [700, 4, 0]),
    ("killed", [400, 3, 0]),
    ("tried again: undone first, and there is no seat", [700, 4, 0]),
]


def test_every_trip_is_booked_or_undone() -> None:
    with temporary_home() as folder:
        server = EmbeddedServer(home=folder / "pg")
        env = {**os.environ, "TXSAGA_PG_HOME": str(folder / "pg")}
        env.pop("TXSAGA_URL", None)
        done = subprocess.run([sys.executable, EXAMPLE], env=env, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stdout + done.stderr
        assert [(moment, numbers(done.stdout, moment)) for moment, _ in MOMENTS] == MOMENTS
        assert not server.status().running


def numbers(text: str, moment: str) -> list[int]:
    """Return what the table of a moment shows."""
    table = re.split(rf"^{re.escape(moment)} *$", text, flags=re.MULTILINE)[1].partition("└")[0]
    (row,) = [line for line in table.splitlines() if line.startswith("│")]
    return [int(word) for word in re.findall(r"\d+", row)]
