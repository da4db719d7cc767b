"""
The parts that make up an Airflow with txsaga, and the processes of a host: found by the mark in their environment.

The supervisor and `docker-compose.yml` run the same parts: there is no other list. Processes are ended by their ids.
Orphans are found too: a worker whose scheduler was killed, a task whose worker was. Only processes with the mark are
touched. Linux only: elsewhere only the recorded processes are known.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

from txsaga.airflow_host.home import MARK, AirflowHome

UNSERVED = ("--skip-serve-logs",)
"""All parts share a folder of logs: a log server would listen on every address of the machine."""


class AirflowPart(StrEnum):
    """A process of its own."""

    API_SERVER = "api-server"
    SCHEDULER = "scheduler"
    DAG_PROCESSOR = "dag-processor"
    TRIGGERER = "triggerer"
    ENGINE = "engine"

    @property
    def is_airflow(self) -> bool:
        """Return whether it is one of Airflow's own."""
        return self is not AirflowPart.ENGINE

    @property
    def command(self) -> tuple[str, ...]:
        """Its command, as a list of arguments."""
        if not self.is_airflow:
            return ("txsaga", "engine")
        return ("airflow", self.value, *(UNSERVED if self in (AirflowPart.SCHEDULER, AirflowPart.TRIGGERER) else ()))


SHARED_LOG = "supervisor"
"""The log of everything else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A living process of a host."""

    pid: int
    session: int


def processes(home: AirflowHome) -> Iterator[Process]:
    """Yield the living processes of a home, except this one."""
    mark = f"{MARK}={home.root}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark not in (folder / "environ").read_bytes().split(b"\0"):
                continue
            state, session = _state_and_session((folder / "stat").read_text(errors="replace"))
        except OSError:
            continue  # it ended meanwhile, or belongs to another account
        if state != "Z" and int(folder.name) != os.getpid():
            yield Process(pid=int(folder.name), session=session)


def end(home: AirflowHome, *, patience: float = 8.0, session: int | None = None) -> int:
    """Ask the processes to stop, then kill those left; of one session or of all. Return how many there were."""
    found = _of(home, session)
    for process in found:
        tell(process.pid, signal.SIGTERM)
    until = time.monotonic() + patience
    while left := _of(home, session):
        if time.monotonic() > until:
            for process in left:
                tell(process.pid, signal.SIGKILL)
        time.sleep(0.05)
    return len(found)


def tell(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may be gone already."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        state, _ = _state_and_session(Path(f"/proc/{pid}/stat").read_text(errors="replace"))
    except OSError:
        return False
    return state != "Z"


def _of(home: AirflowHome, session: int | None) -> list[Process]:
    return [found for found in processes(home) if session is None or found.session == session]


def _state_and_session(stat: str) -> tuple[str, int]:
    fields = stat.rpartition(")")[2].split()
    return fields[0], int(fields[3])


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPart:
    """One part, as it was last started."""

    pid: int
    since: float
    restarts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRecord:
    """The supervisor and its parts."""

    pid: int
    doing: str = ""
    parts: Mapping[str, RunningPart] = field(default_factory=dict)

    @classmethod
    def read(cls, home: AirflowHome) -> PartRecord | None:
        """Return what the last supervisor wrote; None if there is nothing readable."""
        try:
            found = json.loads(home.record_file.read_text("utf-8"))
            parts = {name: RunningPart(**part) for name, part in found.pop("parts").items()}
            return cls(parts=parts, **found)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def write(self, home: AirflowHome) -> None:
        """Replace the record file."""
        home.write(home.record_file, asdict(self))
