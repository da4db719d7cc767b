"""The gate's process: one that dies or hangs is a no, and none is left behind."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from tests.gate.conftest import IDS
from tests.lake.books import LEDGER, Books, rows
from txsaga.errors import NotCarried
from txsaga.gate import expect, process

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(120)]

LIGHT = """
import sys
import txsaga, txsaga.gate
gate = txsaga.gate.expect([{"type": "expect_column_values_to_be_unique", "kwargs": {"column": "id"}}])
heavy = {"great_expectations", "pandas", "pyarrow", "pyspark", "pyiceberg", "psycopg", "sqlalchemy"} & set(sys.modules)
sys.exit(str(sorted(heavy)) if heavy else 0)
"""


def test_making_a_gate_loads_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_a_gate_that_is_killed_says_no_with_what_became_of_it(ledger: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    process.stop()
    whole = process.GateProcess.ask

    def killed(self: process.GateProcess, *args: object) -> str | None:
        os.kill(self.pid, signal.SIGKILL)
        return whole(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(process.GateProcess, "ask", killed)
    with pytest.raises(NotCarried, match="the gate's process ended with -9"):
        with ledger.producer.transaction() as tx:
            tx.table(LEDGER).append(rows(1), gate=expect([IDS]))
    monkeypatch.undo()
    with ledger.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(1), gate=expect([IDS]))
    assert ledger.ids() == [1]


def test_a_gate_that_takes_too_long_says_no_and_is_ended(ledger: Books) -> None:
    process.stop()
    started: list[process.GateProcess] = []
    first = process.GateProcess()
    os.kill(first.pid, signal.SIGSTOP)
    process._idle.give_back(first)
    started.append(first)
    with pytest.raises(NotCarried, match=r"did not answer within 0\.2 s"), ledger.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(1), gate=expect([IDS], timeout=0.2))
    assert not first.alive


def test_a_process_ends_with_its_parent() -> None:
    said = "import os; from txsaga.gate.process import GateProcess as G; print(G().pid, flush=True); os._exit(0)"
    done = subprocess.run([sys.executable, "-c", said], stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    pid, over = int(done.stdout), threading.Event()
    for _ in range(400):
        if not _lives(pid):
            return
        over.wait(0.05)
    pytest.fail("the gate's process outlives its parent")


def _lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_the_same_process_answers_again(ledger: Books) -> None:
    process.stop()
    with ledger.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(1), gate=expect([IDS]))
    (one,) = process._idle._waiting
    with ledger.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(2), gate=expect([IDS]))
    (again,) = process._idle._waiting
    assert one.pid == again.pid and one.alive
