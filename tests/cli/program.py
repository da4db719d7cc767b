"""
The command line as a user calls it: in this process for speed, or as a process of its own.

Both go through the console script's `main`, so codes and lines are those that a shell would see.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
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
    """Return this environment without settings of txsaga, but with these."""
    kept = {name: value for name, value in os.environ.items() if not is_setting(name)}
    return kept | {name: value for name, value in changes.items() if value is not None}


def is_setting(name: str) -> bool:
    """Tell whether a variable is a setting of txsaga."""
    return name.startswith("TXSAGA_") and name != "TXSAGA_TEST_SESSION"


def run(*words: str, env: Mapping[str, str], stdin: bytes = b"") -> Said:
    """Run a command as a process of its own."""
    done = subprocess.run([*COMMAND, *words], env=dict(env), input=stdin, capture_output=True, timeout=TIMEOUT)
    return Said(code=done.returncode, out=done.stdout.decode(), err=done.stderr.decode())
