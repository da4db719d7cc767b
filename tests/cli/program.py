"""
The command line as a user calls it: in this process for speed, or as a process of its own.

Both go through the console script's `main`, so codes and lines are those that a shell would see.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

TIMEOUT = 60.0
COMMAND = (sys.executable, "-m", "txsaga.cli")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The lines of the output."""
        return self.out.splitlines()

    @property
    def complaint(self) -> str:
        """The one line on standard error."""
        (line,) = self.err.splitlines()
        return line

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found

    @property
    def documents(self) -> list[dict[str, Any]]:
        """The one JSON document, a list."""
        found = json.loads(self.out)
        assert isinstance(found, list)
        return found


def environment(**changes: str | None) -> dict[str, str]:
    """Return this environment without settings of txsaga and with buffers as usual, but with these."""
    kept = {n: value for n, value in os.environ.items() if not is_setting(n) and n != "PYTHONUNBUFFERED"}
    return kept | {name: value for name, value in changes.items() if value is not None}


def is_setting(name: str) -> bool:
    """Tell whether a variable is a setting of txsaga."""
    return name.startswith("TXSAGA_") and name != "TXSAGA_TEST_SESSION"


@contextmanager
def started(*words: str, env: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Start a command as a process of its own; it is gone after the block, however that ends."""
    pipe, command = subprocess.PIPE, [*COMMAND, *words]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background may ignore it
    try:
        process = subprocess.Popen(command, env=dict(env), stdout=pipe, stderr=pipe, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        try:
            yield process
        finally:
            process.kill()


def run(*words: str, env: Mapping[str, str], stdin: bytes = b"") -> Said:
    """Run a command as a process of its own."""
    done = subprocess.run([*COMMAND, *words], env=dict(env), input=stdin, capture_output=True, timeout=TIMEOUT)
    return Said(code=done.returncode, out=done.stdout.decode(), err=done.stderr.decode())
