"""
Run the parts of one home, restart those that die, and stop all of them on request.

Each part is its own process session. When a part dies, its session is ended before the part is restarted: a worker
whose scheduler is gone would wait for ever; Airflow retries its task. If the supervisor itself is killed, the operating
system signals the parts and they end; the next start ends whatever is left over.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from types import FrameType

from txsaga.airflow_host import processes
from txsaga.airflow_host.home import AirflowHome
from txsaga.airflow_host.parts import AirflowPart
from txsaga.airflow_host.processes import PartRecord, RunningPart

logger = logging.getLogger("txsaga")
PAUSE = 0.1
SETTLED = 60.0
"""Seconds: a part that ran longer is restarted at once."""
LONGEST = 30.0
PR_SET_PDEATHSIG = 1
ORDER = (
    AirflowPart.API_SERVER,
    AirflowPart.SCHEDULER,
    AirflowPart.DAG_PROCESSOR,
    AirflowPart.TRIGGERER,
    AirflowPart.ENGINE,
)


class Supervisor:
    """The parent process of the parts of one home."""

    def __init__(self, home: AirflowHome, run: Callable[[AirflowPart], int]) -> None:
        self._home, self._run = home, run
        self._record = PartRecord(pid=os.getpid(), started=time.time())
        self._due: dict[AirflowPart, float] = dict.fromkeys(ORDER, 0.0)
        self._stopping = False

    def tell(self, doing: str) -> None:
        """Record what the supervisor is doing before the parts run."""
        logger.info("%s", doing)
        self._record = replace(self._record, doing=doing)
        self._record.write(self._home)

    def watch(self, look: Callable[[], None]) -> None:
        """Keep the parts running until a stop is requested; call `look` in every round to check what else must run."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        self.tell("")
        while not self._stopping:
            self._reap()
            self._start_due()
            look()
            time.sleep(PAUSE)
        self.end()

    def end(self) -> None:
        """Stop all parts."""
        logger.info("stopping")
        for running in self._record.parts.values():
            processes.tell(running.pid, signal.SIGTERM)
        until = time.monotonic() + 6
        while self._record.parts and time.monotonic() < until:
            self._reap(again=False)
            time.sleep(0.02)
        processes.end(self._home, patience=1)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True

    def _start_due(self) -> None:
        due = [part for part, moment in self._due.items() if moment <= time.monotonic()]
        for part in due:
            del self._due[part]
            before = self._record.parts.get(part)
            started = RunningPart(
                pid=self._fork(part), since=time.time(), restarts=before.restarts + 1 if before else 0
            )
            self._record = replace(self._record, parts={**self._record.parts, part: started})
        if due:
            self._record.write(self._home)

    def _reap(self, *, again: bool = True) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            part = next((AirflowPart(name) for name, running in self._record.parts.items() if running.pid == pid), None)
            if part is None:
                continue  # a child of a part that was killed
            if again:
                self._died(part, os.waitstatus_to_exitcode(status))
            else:
                self._forget(part)

    def _died(self, part: AirflowPart, code: int) -> None:
        running = self._record.parts[part]
        lived = time.time() - running.since
        wait = 0.0 if lived > SETTLED else min(LONGEST, 0.5 * 2 ** min(running.restarts, 10))
        logger.warning("%s ended with %d after %.0f s; it is started again in %.1f s", part, code, lived, wait)
        processes.end(self._home, patience=1, session=running.pid)
        self._due[part] = time.monotonic() + wait

    def _forget(self, part: AirflowPart) -> None:
        left = {name: running for name, running in self._record.parts.items() if name != part}
        self._record = replace(self._record, parts=left)

    def _fork(self, part: AirflowPart) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        child = os.fork()
        if child:
            return child
        code = 1
        try:
            self._settle_in(part, parent)
            code = self._run(part)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _settle_in(self, part: AirflowPart, parent: int) -> None:
        """Make the child a session with its own log that ends when its parent ends."""
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)
        log = os.open(self._home.log_of(part), os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
        os.close(log)
