"""The demo: a transfer between two databases that goes well, is refused, is killed half way."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine, text

from tests.services.embedded import temporary_home
from txsaga.embedded.server import EmbeddedServer

pytestmark = [pytest.mark.postgres, pytest.mark.req("RMQ-01")]

DEMO = Path(__file__).parents[2] / "examples" / "bank_transfer.py"
MOMENTS = [
    ("before", 50_000, 0, "none"),
    ("decided", 40_000, 0, "visible"),
    ("delivered", 40_000, 10_000, "visible"),
    ("before", 40_000, 10_000, "none"),
    ("refused", 40_000, 10_000, "never visible"),
    ("delivered", 40_000, 10_000, "never visible"),
    ("before", 40_000, 10_000, "none"),
    ("killed", 30_000, 10_000, "invisible, undecided"),
    ("checked back", 30_000, 10_000, "visible"),
    ("delivered", 30_000, 20_000, "visible"),
]


def test_debits_equal_credits_whatever_happens_and_the_database_is_left_as_it_was_found() -> None:
    with temporary_home() as folder:
        server = EmbeddedServer(home=folder / "pg")

        assert moments(run(server)) == MOMENTS
        assert not server.status().running

        server.ensure()
        assert moments(run(server)) == MOMENTS
        assert server.status().running
        assert balances(server, "bank_a") == [30_000, 30_000]
        assert balances(server, "bank_b") == [20_000, 20_000]


def test_a_demo_that_fails_stops_the_database_that_it_started() -> None:
    with temporary_home() as folder:
        server = EmbeddedServer(home=folder / "pg")
        done = start(server, {"TXSAGA_AUTO_CREATE": "perhaps"})
        assert done.returncode == 1
        assert "TXSAGA_AUTO_CREATE is 'perhaps'" in done.stderr
        assert not server.status().running


def run(server: EmbeddedServer) -> str:
    """Run the demo to its end and return what it printed."""
    done = start(server, {})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "debits 20,000 = credits 20,000" in done.stdout
    return done.stdout


def start(server: EmbeddedServer, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the demo on a server's home."""
    env = {**os.environ, "TXSAGA_PG_HOME": str(server.home), "COLUMNS": "120", **env}
    command = [sys.executable, "-W", "error", str(DEMO)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def moments(output: str) -> list[tuple[str, int, int, str]]:
    """Read the rows of the printed tables."""
    rows = re.findall(r"│ ([a-z ]+?) +│ ([\d,]+) +│ ([\d,]+) +│ ([a-z, ]+?) +│", output)
    return [(what, int(a.replace(",", "")), int(b.replace(",", "")), message) for what, a, b, message in rows]


def balances(server: EmbeddedServer, bank: str) -> list[int]:
    """Read the accounts of a bank, whoever opened them."""
    engine = create_engine(server.url(bank), poolclass=NullPool)
    with engine.connect() as connection:
        return list(connection.execute(text("SELECT balance FROM account ORDER BY name")).scalars())
