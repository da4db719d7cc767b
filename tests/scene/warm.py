"""
Python programs in processes of their own, forked from one that has imported what most of them need.

    with warm_python() as python:
        code, output = python.run(["-m", "txsaga.cli", "db", "status"], env=os.environ, folder=Path.cwd())

A start takes milliseconds instead of a second. A program has its words, environment, folder and output for itself, and
runs as `__main__` to the end of its interpreter.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
IMPORTED = ("alembic.command", "txsaga.cli.__main__", "txsaga.broker", "txsaga.wiring.connecting")


class WarmPython:
    """The process that forks; it runs one program at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(
        self, words: Sequence[str], *, env: Mapping[str, str], folder: Path, timeout: float = 60.0
    ) -> tuple[int, str]:
        """Run what follows `python` on a line; return its exit code, negative for a signal, and its output."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with tempfile.NamedTemporaryFile() as output:
            program = {"words": list(words), "env": dict(env), "folder": str(folder), "output": output.name}
            self._process.stdin.write(json.dumps([program, timeout]) + "\n")
            self._process.stdin.flush()
            code = self._process.stdout.readline()
            assert code, "the process that forks has ended"
            return int(code), output.read().decode()


@contextmanager
def warm_python() -> Iterator[WarmPython]:
    """Start the process that forks, and end it."""
    command, pipe = [sys.executable, "-m", "tests.scene.warm"], subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        yield WarmPython(process)
        assert process.stdin is not None
        process.stdin.close()


def main() -> None:
    """Fork for each line of the input and write how the process ended; the fork becomes the program."""
    for name in IMPORTED:
        import_module(name)
    gc.freeze()
    for line in sys.stdin:
        program, timeout = json.loads(line)
        pid = os.fork()
        if not pid:
            return _become(**program)
        print(_code(pid, timeout), flush=True)


def _code(pid: int, timeout: float) -> int:
    """Wait for a process; kill it when it takes too long."""
    over = os.pidfd_open(pid)
    if not select.select([over], [], [], timeout)[0]:
        os.kill(pid, signal.SIGKILL)
    os.close(over)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _become(words: Sequence[str], env: Mapping[str, str], folder: str, output: str) -> None:
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    _replace(0, os.open(os.devnull, os.O_RDONLY))
    sys.stdin = open(0, closefd=False)
    _replace(1, os.open(output, os.O_WRONLY | os.O_APPEND))
    os.dup2(1, 2)
    if words[0] == "-m":
        sys.argv, sys.path[0] = list(words[1:]), folder
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = list(words), str(Path(words[0]).absolute().parent)
        runpy.run_path(words[0], run_name="__main__")


def _replace(descriptor: int, opened: int) -> None:
    os.dup2(opened, descriptor)
    os.close(opened)


if __name__ == "__main__":
    main()
