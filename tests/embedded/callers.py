"""Who calls: whoever runs the tests, and, when that is root, an ordinary user as well."""

import json
import os
import pwd
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.embedded.private_binaries import copy_of_the_binaries
from txsaga.embedded.account import Account
from txsaga.embedded.binaries import find_binaries

PROGRAM = Path(__file__).with_name("starter.py")
IS_ROOT = os.geteuid() == 0
NEEDS_ROOT = pytest.mark.skipif(not IS_ROOT, reason="only root can act as another account")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one starter told."""

    pid: int | None = None
    port: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """An account that asks for a server; without a user it is the one that runs the tests."""

    name: str
    user: int | None = None

    def start(self, home: Path, *, before: Sequence[str] = ()) -> Outcome:
        """Run one starter to its end, behind the command `before`."""
        return finish(self.spawn(home, before))

    def race(self, home: Path, count: int = 6) -> list[Outcome]:
        """Run starters at the same time."""
        return [finish(starter) for starter in [self.spawn(home) for _ in range(count)]]

    def spawn(self, home: Path, before: Sequence[str] = ()) -> subprocess.Popen[str]:
        """Begin one starter."""
        command = [*before, sys.executable, "-W", "error", str(PROGRAM), str(home)]
        if self.user is not None:
            command += ["--user", str(self.user), "--binaries", str(self._binaries(home.parent))]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def _binaries(self, public: Path) -> Path:
        """Find binaries that this user can run, as if they had a virtual environment of their own."""
        assert self.user is not None
        found = find_binaries(wanted=None, major=None).folder
        if Account(name=self.name, user=self.user, group=self.user).reaches(found / "postgres"):
            return found
        copies = public / "venv"
        known = list(copies.glob("*/*/bin"))
        return known[0] if known else copy_of_the_binaries(copies)


def finish(starter: subprocess.Popen[str]) -> Outcome:
    """Wait for a starter and read what it printed."""
    out, err = starter.communicate(timeout=90)
    assert starter.returncode == 0, err
    return Outcome(**json.loads(out))


ME = Caller(name="the caller")
ORDINARY = Caller(name="nobody", user=pwd.getpwnam("nobody").pw_uid)
CALLERS = [pytest.param(ME, id="me"), pytest.param(ORDINARY, id="ordinary-user", marks=NEEDS_ROOT)]
