"""
A service that takes part and can be killed, and started again on its port with what it kept in its folder.

    python -m tests.chaos.till FOLDER PORT SECRET [PHASE:before|PHASE:after]     dies at its first call of that phase
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.resources.callables.service import SECRET, Till
from tests.services.free_port import free_port
from txsaga.resources.http import SignedCall

ROOT = Path(__file__).parents[2]
PHASES = ("try", "confirm", "cancel")
DEATHS = tuple(f"{phase}:{moment}" for phase in PHASES for moment in ("before", "after"))


class Mortal(Till):
    """A service that dies at one call: before it has done what is asked, or before it answers."""

    def __init__(self, folder: Path, port: int, secret: str, death: str = "") -> None:
        super().__init__(folder, port, secret)
        self._death = death

    def answer(self, called: SignedCall, item: int) -> int:
        """Do what is asked, and die where that is due."""
        self._die(f"{called.phase}:before")
        status = super().answer(called, item)
        self._die(f"{called.phase}:after")
        return status

    def _die(self, moment: str) -> None:
        if moment == self._death:
            os.kill(os.getpid(), signal.SIGKILL)


class Program:
    """A service as a program, on one port."""

    def __init__(self, folder: Path, death: str = "") -> None:
        self.folder, self.port = folder, free_port()
        self._start(death)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def died(self) -> bool:
        """Whether it has killed itself."""
        return self._process.poll() is not None

    def restart(self) -> None:
        """Kill it, if it lives, and start it again."""
        self.kill()
        self._start()

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.communicate()

    def _start(self, death: str = "") -> None:
        command = [sys.executable, "-m", "tests.chaos.till", str(self.folder), str(self.port), SECRET, death]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"listens\n"


@contextmanager
def service(folder: Path, death: str = "") -> Iterator[Program]:
    """Start a service, and kill it in the end."""
    program = Program(folder, death)
    try:
        yield program
    finally:
        program.kill()


def kept(folder: Path, state: str) -> list[int]:
    """Return the items that a service reserved or took, sorted."""
    return sorted(int(path.read_text()) for path in folder.glob(f"*.{state}"))


if __name__ == "__main__":
    with Mortal(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]) as till:
        print("listens", flush=True)  # to whoever started it
        till.serve_forever()
