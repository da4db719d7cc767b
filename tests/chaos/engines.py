"""An engine and a member as processes of their own, told by words on their standard input what to do next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ENGINE = """
import sys, txsaga
from datetime import timedelta
from txsaga.checkback.round import CheckBack
from txsaga.checkback.round import Round
from txsaga.checkback.heartbeat import Lease
from txsaga.checkback.profile import CheckProfile
from txsaga.core.facts import Asking

Lease.TTL = timedelta(seconds=1)
profile = CheckProfile(interval=timedelta(hours=1), min_age=timedelta(0))

def stand_still(fact):
    if isinstance(fact, Asking) and sys.argv[2] == "stalls":
        print("about to ask", flush=True)
        sys.stdin.readline()

with txsaga.connect(sys.argv[1], roles=False, answering=False, observers=[stand_still], env={}) as broker:
    dispatcher, *_ = broker.roles()
    check_back = CheckBack(broker.kernel, profile)
    print("ready", flush=True)
    for _ in sys.stdin:
        dispatcher.run_once()
        print("round", check_back.run_once(), flush=True)
"""

MEMBER = """
import sys, txsaga
from txsaga import LocalState

def checker(question):
    print("asked", question.txid, flush=True)
    if sys.argv[2] == "hangs":
        sys.stdin.readline()
    return LocalState.COMMIT

with txsaga.connect(sys.argv[1], roles=False, env={}) as broker:
    broker.producer("shop", checker=checker)
    print("ready", flush=True)
    sys.stdin.readline()
    sys.stdin.readline()
"""


class Process:
    """One of them."""

    def __init__(self, program: str, home: str, mood: str) -> None:
        pipe = subprocess.PIPE
        root = str(Path(__file__).parents[2])
        env = os.environ | {"PYTHONPATH": root}
        command = [sys.executable, "-c", program, home, mood]
        self._popen = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env)

    def say(self, word: str = "go on") -> None:
        """Tell it to go on."""
        assert self._popen.stdin is not None
        self._popen.stdin.write(f"{word}\n")
        self._popen.stdin.flush()

    def heard(self) -> str:
        """Wait for its next line."""
        assert self._popen.stdout is not None
        return self._popen.stdout.readline().strip()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self._popen.pid, number)

    def end(self) -> None:
        """Kill it."""
        self._popen.kill()
        self._popen.wait()
        for stream in (self._popen.stdin, self._popen.stdout):
            assert stream is not None
            stream.close()


@contextmanager
def started(program: str, home: str, mood: str = "works") -> Iterator[Process]:
    """Start one, and kill it in the end."""
    process = Process(program, home, mood)
    try:
        assert process.heard() == "ready"
        yield process
    finally:
        process.end()
