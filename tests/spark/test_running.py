"""A program ends with its parent, and takes all that it started along; what is refused is one line."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import txsaga
from txsaga.spark.__main__ import stages
from txsaga.wiring.connecting import open_store

PARENT = """
import subprocess, sys
from threading import Thread
from txsaga.spark.__main__ import _end_with_parent
beside = subprocess.Popen(["sleep", "600"])
print(beside.pid, flush=True)
Thread(target=_end_with_parent).start()
beside.wait()
"""


class Stage:
    stageId, numCompletedTasks, numTasks = 7, 3, 200


class Tracker:
    def getActiveStageIds(self) -> list[int]:
        return [7, 8]

    def getStageInfo(self, stage: int) -> Stage | None:
        return Stage() if stage == 7 else None


def test_progress_is_told_by_stage() -> None:
    assert stages(Tracker()) == "stage 7: 3 of 200 tasks"


def test_a_program_and_what_it_started_end_with_their_parent() -> None:
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        beside = int(process.stdout.readline())
        process.stdin.close()
        assert process.wait(30) == -signal.SIGKILL
    assert _is_gone(beside)


def _is_gone(pid: int) -> bool:
    wait = threading.Event()
    for _ in range(100):
        stat = Path(f"/proc/{pid}/stat")
        try:
            if stat.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        wait.wait(0.05)
    return False


@pytest.mark.parametrize(
    ("program", "told"),
    [("nowhere.py", "ConfigError: program nowhere.py does not exist"), ("no_such:run", "ConfigError: program no_such")],
)
def test_a_program_that_is_not_there_is_one_line_and_an_exit(program: str, told: str) -> None:
    command = [sys.executable, "-m", "txsaga.spark", program]
    env = {**os.environ, "TXSAGA_URL": "postgresql://nobody@127.0.0.1:1/nowhere"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)
    assert done.returncode == 3 and done.stdout.startswith(told) and len(done.stdout.splitlines()) == 1, done.stderr


def test_a_store_that_is_away_is_worth_another_try() -> None:
    command = [sys.executable, "-m", "txsaga.spark", "spark_jobs/ledger.py", "topic=transfers"]
    env = {**os.environ, "TXSAGA_URL": "postgresql://nobody@127.0.0.1:1/nowhere"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)
    assert done.returncode == 75 and done.stdout.startswith("StoreUnavailable"), done.stdout + done.stderr


ROWS = """
def run(job):
    rows = job.spark.range(int(job.argument("rows"))).selectExpr("id")
    job.transaction.table("bank.number").create({"id": "long"})
    return {"rows": job.append("bank.number", rows), "more": job.argument("more", "nothing")}
"""


@pytest.mark.postgres
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_program_runs_in_a_transaction_of_its_own(home_url: str, tmp_path: Path) -> None:
    open_store(home_url).close()
    program, result = tmp_path / "rows.py", tmp_path / "result.json"
    program.write_text(ROWS, "utf-8")
    words = [str(program), "--key", "once", "rows=3", "--master", "local[1]", "--result", str(result), "more=a=b"]
    env = {**os.environ, "TXSAGA_URL": home_url, "TXSAGA_WAREHOUSE": str(tmp_path / "warehouse")}
    command = [sys.executable, "-m", "txsaga.spark", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(result.read_text("utf-8")) == {"rows": 3, "more": "a=b"}
    with txsaga.connect(home_url, roles=False, answering=False, env={}) as broker:
        with broker.cut(tables=["bank.number"]) as cut:
            assert cut.scan("bank.number").to_arrow().num_rows == 3
