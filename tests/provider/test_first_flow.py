"""The tutorial of the first flow: its files, run in its order, by an Airflow without processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.provider.examples import example
from tests.provider.house import House

PAGE = (ROOT / "docs" / "tutorial" / "first-flow.md").read_text("utf-8")
SAVED = re.compile(r"^cat > (?P<file>\S+) <<'(?P<end>\w+)'\n(?P<text>.*?)^(?P=end)$", re.M | re.S)
BANKS = ("bank_a", "bank_b")


@pytest.fixture
def files(house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder with every file of the page, and two empty banks."""
    for bank in BANKS:
        house.postgres(bank)
        house.execute(bank, "DROP TABLE IF EXISTS account")
        monkeypatch.setenv(f"TXSAGA_RESOURCE_{bank.upper()}", house.database(bank))
    (tmp_path / "my-dags").mkdir()
    for saved in SAVED.finditer(PAGE):
        (tmp_path / saved["file"]).write_text(saved["text"], "utf-8")
    return tmp_path


def test_the_first_flow_pays_and_then_fails_as_its_page_says(house: House, files: Path) -> None:
    house.topic("paid")
    printed(files, "banks.py")
    pay = example("pay", files / "my-dags")

    good = house.run(pay)
    assert good.state == "success"
    assert set(good.tasks) == {"begin", "debit", "credit", "publish_paid", "seal", "end"}
    assert printed(files, "balances.py") == ["7500", "12500"]
    assert "The first account has 7500 cents, the second one 12500." in PAGE
    assert [json.loads(each) for each in house.seen("paid")] == [{"cents": 2500}]

    printed(files, "close.py")
    failed = house.run(pay)
    assert (failed.state, failed.tasks["credit"], failed.tasks["end"]) == ("failed", "failed", "failed")
    assert printed(files, "balances.py") == ["7500", "None"]


def printed(folder: Path, program: str) -> list[str]:
    """Run a program of the page, and return the last word of each line that it prints."""
    done = subprocess.run(
        [sys.executable, program], cwd=folder, env=dict(os.environ), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return [line.split()[-1] for line in done.stdout.splitlines()]
