"""The supervisor with parts that only wait: what dies is started again, what is left is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from txsaga.airflow_host import processes
from txsaga.airflow_host.home import MARK, AirflowHome
from txsaga.airflow_host.processes import AirflowPart, PartRecord

PROGRAM = textwrap.dedent("""
    import subprocess, sys, time
    from txsaga.airflow_host.home import AirflowHome
    from txsaga.airflow_host.processes import AirflowPart
    from txsaga.provider.supervisor import Supervisor

    def run(part):
        if part is AirflowPart.SCHEDULER:  # with a worker in a group of its own, as Airflow's tasks are
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], process_group=0)
        time.sleep(60)
        return 0

    Supervisor(AirflowHome.from_env(), run).watch(lambda: None)
""")


def until(found: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[AirflowHome]:
    """Give a home whose supervisor runs."""
    home = AirflowHome(root=tmp_path)
    home.create()
    env = os.environ | {"TXSAGA_AIRFLOW_HOME": str(tmp_path), MARK: str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], env=env, start_new_session=True) as supervisor:
        try:
            until(lambda: len(pids(home)) == len(AirflowPart))
            yield home
        finally:
            supervisor.kill()
            supervisor.wait()
            processes.end(home, patience=1)


def pids(home: AirflowHome) -> dict[str, int]:
    record = PartRecord.read(home)
    return {name: part.pid for name, part in record.parts.items()} if record else {}


def test_a_part_that_is_killed_is_started_again_and_its_workers_are_ended(home: AirflowHome) -> None:
    before = pids(home)
    until(lambda: len(of_session(home, before[AirflowPart.SCHEDULER])) == 2)
    os.kill(before[AirflowPart.SCHEDULER], signal.SIGKILL)
    until(lambda: pids(home)[AirflowPart.SCHEDULER] != before[AirflowPart.SCHEDULER])
    assert not of_session(home, before[AirflowPart.SCHEDULER])
    others = [part for part in AirflowPart if part is not AirflowPart.SCHEDULER]
    assert [pids(home)[part] for part in others] == [before[part] for part in others]


def test_it_stops_everything_when_it_is_told_to(home: AirflowHome) -> None:
    record = PartRecord.read(home)
    assert record is not None
    os.kill(record.pid, signal.SIGTERM)
    until(lambda: not list(processes.processes(home)))


def test_parts_end_with_a_supervisor_that_is_killed(home: AirflowHome) -> None:
    record = PartRecord.read(home)
    assert record is not None
    os.kill(record.pid, signal.SIGKILL)
    until(lambda: not any(processes.is_alive(pid) for pid in pids(home).values()))


def of_session(home: AirflowHome, session: int) -> list[int]:
    return [process.pid for process in processes.processes(home) if process.session == session]
