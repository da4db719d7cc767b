"""
A step that runs a Spark program: a separate process joins the flow and does the step with its own session.

    SparkStep(task_id="ledger", program="spark_jobs/ledger.py", arguments={"topic": "transfers"})

The task starts that process, shows its progress in the log, and waits. With a local master they end together: the
process sees the end of its standard input, and its JVM ends with it. On a cluster it outlives its task: if the task is
killed the driver goes on, and the next attempt finds it through what the step recorded, and joins it. Its state is in
the store; its output is in a file, which is shown if it is on this machine. If the driver is gone, or has sent no
heartbeat for half a minute, the next attempt starts another one, which supersedes it: what the old one still writes is
never published (R4).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir, mkdtemp
from threading import Thread
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from txsaga.errors import ConfigError, DecidedOtherwise, LakeMissing, TxSagaError
from txsaga.flows.flow import Flow
from txsaga.flows.step import StepState
from txsaga.flows.step_attempts import Attempted
from txsaga.provider.operators.task import MAX_RESULT, FlowOperator, JoinedFlow, find_result, keep_result, result_limit
from txsaga.provider.planning.modes import DeclaredStep
from txsaga.provider.reference import step_name_of
from txsaga.spark import application
from txsaga.spark.application import SparkDriver, driver_at_work
from txsaga.spark.job import HANDED_OVER, kept_place

MASTER = "TXSAGA_SPARK_MASTER"


class SparkStep(FlowOperator):
    """Run a Spark program as a step of the flow; its XCom is what the program returns."""

    template_fields: Collection[str] = ("flow", "program", "arguments")

    def __init__(
        self,
        *,
        program: str,
        arguments: Mapping[str, object] | None = None,
        master: str | None = None,
        submit: bool = False,
        conf: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        reattach: bool | None = None,
        max_result: int = MAX_RESULT,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.max_result = result_limit(max_result, self.task_id)
        self.program, self.arguments, self.master = program, dict(arguments or {}), master
        self.submit, self.conf, self.env = submit, dict(conf or {}), dict(env or {})
        if not isinstance(reattach, bool | None):
            raise ConfigError(f"reattach of step {self.task_id!r} is {reattach!r}; use True or False, or leave it out")
        self.reattach = reattach
        self._process: subprocess.Popen[str] | None = None
        self._driver: StepDriver | None = None

    def work(self, context: Context, flow: JoinedFlow) -> object:
        """Run the program, unless an earlier attempt has done the step."""
        name = step_name_of(context["ti"])
        found = flow.flow.attempt(name)
        if found is not None and found.state is StepState.DONE:
            self.log.info("step %s was done by an attempt before", name)
            clear_behind(found)
            kept = found.application
            return find_result(context, flow.txid) if kept is None else read_result(kept.result)
        if self._reattaches():
            self._driver = StepDriver(flow.flow, name, self.log, lambda: self._detached(context, flow, name))
            return read_result(self._driver.run())
        with TemporaryDirectory(prefix=FOLDER) as folder:
            result = Path(folder) / "result.json"

            def keep() -> None:
                keep_result(context, flow.txid, json.loads(result.read_text("utf-8")), self.max_result)
                kept_place(result).touch()

            words = ["--result", str(result), "--with-parent"]
            said = self._run(self._command(context, flow, name, words), self._environment(context, flow), keep)
            if said is not None:
                raise said
            return read_result(result.read_text("utf-8"))

    def declared(self) -> DeclaredStep:
        """Return this task as a declared step of the flow."""
        return DeclaredStep(name=self.task_id)

    def on_kill(self) -> None:
        """End the process and its JVM."""
        if self._process is not None:
            end_group(self._process)
        if self._driver is not None:
            self._driver.end()

    def _reattaches(self) -> bool:
        """Return whether the driver outlives a killed task: by default on a cluster only, unless `reattach` is set."""
        if self.reattach is not None:
            return self.reattach
        said = {**os.environ, **self.env}.get(MASTER)
        return not (self.master or self.conf.get("spark.master") or said or "local").startswith("local")

    def _detached(self, context: Context, flow: JoinedFlow, name: str) -> tuple[subprocess.Popen[str], Path]:
        """Start a process that outlives this one; return it and its log file."""
        lines = Path(mkdtemp(prefix=FOLDER)) / "lines.log"
        words = ["--detached", str(lines), *(["--max-result", str(self.max_result)] if self.do_xcom_push else [])]
        command, env = self._command(context, flow, name, words), self._environment(context, flow)
        with lines.open("w", encoding="utf-8") as told:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=subprocess.STDOUT,
                text=True,
                env=env,
                start_new_session=True,
            )
        return process, lines

    def _run(self, command: Sequence[str], env: Mapping[str, str], keep: Callable[[], None]) -> Exception | None:
        """Run a process to its end with its output in the log, keep its result; return its error."""
        last = ""
        with self._started(command, env) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if HANDED_OVER in line:  # it waits for this before its step is done
                    keep()
                    continue
                last = line.rstrip() or last
                self.log.info("%s", line.rstrip())
            code = process.wait()
        if code == 0:
            return None
        if code == REFUSED:
            return AirflowFailException(last)
        return AirflowException(f"program {self.program} ended with {code}: {last}")

    @contextmanager
    def _started(self, command: Sequence[str], env: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
        process = self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=dict(env),
            start_new_session=True,
        )
        try:
            yield process
        finally:
            end_group(process)
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
            self._process = None

    def _command(self, context: Context, flow: JoinedFlow, name: str, words: Sequence[str]) -> list[str]:
        told = [
            f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in self.arguments.items()
        ]
        master = ["--master", self.master] if self.master else []
        conf = [word for key, value in self.conf.items() for word in ("--conf", f"{key}={value}")]
        said = [str(self._place(context)), *told, *master, *conf, "--flow", str(flow.txid), "--step", name, *words]
        if not self.submit:
            return [sys.executable, "-m", "txsaga.spark", *said]
        pyspark = find_spec("pyspark")
        if pyspark is None or pyspark.origin is None:
            raise ConfigError("Spark needs its package: pip install 'txsaga[spark]'")
        main = Path(str(application.__file__)).with_name("__main__.py")
        return [str(Path(pyspark.origin).parent / "bin" / "spark-submit"), *master, *conf, str(main), *said]

    def _environment(self, context: Context, flow: JoinedFlow) -> dict[str, str]:
        """Return the environment of the process, which has the database URL to keep it off the command line."""
        tables = flow.broker.kernel.tables
        env = {**os.environ, "TXSAGA_URL": tables.home_url(), "PYSPARK_PYTHON": sys.executable}
        with suppress(LakeMissing, AttributeError):
            env["TXSAGA_WAREHOUSE"] = str(getattr(tables, "warehouse"))  # noqa: B009  # only this adapter has it
        place = self._place(context)
        roots = [str(place.parent.parent)] if isinstance(place, Path) else []
        env["PYTHONPATH"] = os.pathsep.join([*roots, *filter(None, [env.get("PYTHONPATH")])])
        return {**env, **self.env}

    def _place(self, context: Context) -> Path | str:
        """Find the program: in the working folder, beside the DAG file, or one folder above that."""
        file, colon, entry = self.program.partition(".py:")
        if not self.program.endswith(".py") and not colon:
            return self.program  # a module
        path = Path(f"{file}.py" if colon else file)
        beside = Path(str(context["dag"].fileloc)).resolve().parent
        for root in (Path.cwd(), beside, beside.parent):
            if (root / path).is_file():
                found = (root / path).resolve()
                return found.with_name(f"{found.name}:{entry}") if colon else found
        raise ConfigError(f"program {self.program} is not in {Path.cwd()}, {beside} or {beside.parent}")


class DriverLines:
    """A log file that is still being written."""

    def __init__(self, place: Path, log: Any) -> None:
        self.place, self.last = place, ""
        self._log, self._begun = log, ""
        self._file = place.open(encoding="utf-8", errors="replace")

    def show(self, *, rest: bool = False) -> None:
        """Log the lines added since the last call; with `rest`, also an unfinished last line."""
        *whole, self._begun = (self._begun + self._file.read()).split("\n")
        if rest and self._begun:
            whole, self._begun = [*whole, self._begun], ""
        for line in whole:
            self.last = line.rstrip() or self.last
            self._log.info("%s", line.rstrip())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


LOOK = 2.0
"""Seconds between two polls of the store."""
PATIENCE = 20.0
"""Seconds that a process has to end by itself after its task is killed, or its step is done."""
AWAY = 60.0
"""Seconds that the store may be unavailable before the outcome of a driver that has ended counts as unknown."""
HURRY = 2.0
"""The same where Airflow itself kills the task a few seconds later."""
REFUSED = 3
FOLDER = "txsaga-spark-"
"""Prefix of a driver's log folder, in the folder of temporary files."""

Started = tuple["subprocess.Popen[str]", Path]


class StepDriver:
    """The driver of one step, as one task sees it."""

    def __init__(self, flow: Flow, step: str, log: Any, start: Callable[[], Started]) -> None:
        self._flow, self._step, self._log, self._start = flow, step, log, start
        self._process: subprocess.Popen[str] | None = None
        self._joined: SparkDriver | None = None
        self._place: Path | None = None
        self._wanted = True
        self._away: float | None = None  # since when the store has been unavailable
        self._lines: DriverLines | None = None

    def run(self) -> str | None:
        """Join the running driver or start one; return the result of the step as JSON."""
        while True:
            found = self._flow.attempt(self._step)
            if found is not None and found.state is StepState.DONE:
                return None if found.application is None else found.application.result
            if not self._wanted:
                raise AirflowException(f"the task of step {self._step} was ended, and its driver with it")
            clear_behind(found)
            self._joined = driver_at_work(found)
            if self._joined is not None:
                self._process = None
                self._join(self._joined)
            else:
                self._process, self._place = self._start()
                self._lines = DriverLines(self._place, self._log)
                if not self._wanted:  # it was ended meanwhile
                    self.end()
            try:
                self._follow()
            finally:
                self._leave()

    def end(self) -> None:
        """End the driver, because an operator or Airflow ends its task."""
        self._wanted = False
        if self._process is not None:
            end_group(self._process, HURRY)
            self._clear()
        elif self._joined is not None and self._joined.is_near:
            self._joined.end()
        elif self._joined is not None:
            # A signal handler must not wait for the main thread.
            ending = Thread(target=self._take_place, daemon=True)
            ending.start()
            ending.join(HURRY)

    def _join(self, driver: SparkDriver) -> None:
        self._place = Path(driver.lines) if driver.is_near else None
        self._log.info("joining application %s of an attempt before: process %d on %s", *_where(driver))
        if self._place is not None and self._place.is_file():
            self._lines = DriverLines(self._place, self._log)
        else:
            self._log.info("its lines are in %s there", driver.lines)

    def _follow(self) -> None:
        """Log the driver's output until its step is done, or the driver no longer works."""
        while True:
            over = self._process is not None and self._process.poll() is not None
            found = self._look()
            self._show()
            if found is not None and found.state is StepState.DONE:
                self._wait()
                return
            if found is not None and found.state is StepState.FAILED and self._is_mine(found):
                self._wait()
                over = True
            if over and self._away is None:
                self._require_another(found)
                return
            if over:
                self._require_store()
            if self._joined is not None and self._is_over(self._joined, found):
                return
            time.sleep(LOOK)

    def _look(self) -> Attempted | None:
        try:
            found = self._flow.attempt(self._step)
        except DecidedOtherwise:
            self.end()
            raise
        except TxSagaError as error:
            if not error.retryable:
                raise
            self._away = self._away or time.monotonic()
            self._log.warning("the state of step %s can't be read now: %s", self._step, error)
            return None
        self._away = None
        return found

    def _require_store(self) -> None:
        """Raise if the store stays unavailable after the driver has ended."""
        if self._away is not None and time.monotonic() - self._away > AWAY:
            raise AirflowException(f"the driver of step {self._step} has ended, its result is unknown")

    def _is_mine(self, found: Attempted) -> bool:
        """Return whether an attempt belongs to the process that was started here."""
        driver = None if found.application is None else SparkDriver.of(found.application.about)
        return self._process is not None and driver is not None and driver.lines == str(self._place)

    def _require_another(self, found: Attempted | None) -> None:
        """Raise the error of our process, which ended and left its step open, unless another driver took over."""
        assert self._process is not None
        self._show(rest=True)
        last, code = "" if self._lines is None else self._lines.last, self._process.returncode
        if driver_at_work(found) is not None:
            return
        if code == REFUSED and (found is None or found.application is None or self._is_mine(found)):
            raise AirflowFailException(last)
        raise AirflowException(f"the driver of step {self._step} ended with {code}: {last}")

    def _is_over(self, driver: SparkDriver, found: Attempted | None) -> bool:
        """Return whether a joined driver no longer works; raise if it failed."""
        if found is None or driver_at_work(found) == driver:
            return False  # its state is unknown for now, or it works
        if found.state is StepState.FAILED and found.application is not None:
            self._show(rest=True)
            raise AirflowException(f"application {found.application.name}, joined by this task, failed: {found.why}")
        self._log.warning("application %s is gone or sends no heartbeat: process %d on %s", *_where(driver))
        return True

    def _wait(self) -> None:
        """Wait until the driver ends by itself after its step is done; then end it."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and not self._is_gone():
            time.sleep(LOOK / 10)
        if self._joined is None or self._joined.is_near:
            self.end()

    def _is_gone(self) -> bool:
        if self._process is not None:
            return self._process.poll() is not None
        return self._joined is None or self._joined.is_gone or not self._joined.is_near

    def _show(self, *, rest: bool = False) -> None:
        if self._lines is not None:
            self._lines.show(rest=rest)

    def _leave(self) -> None:
        """Close the log, and remove it if the driver is over; a working driver is left to the next task."""
        lines, self._lines = self._lines, None
        if lines is not None:
            lines.show(rest=self._is_gone())
            lines.close()
        if self._is_gone():
            self._clear()

    def _clear(self) -> None:
        if self._place is not None:
            _remove(self._place)

    def _take_place(self) -> None:
        """Supersede a driver that can't be reached: it notices that and ends."""
        with suppress(TxSagaError, _Cancelled), self._flow.step(self._step):
            raise _Cancelled("the task was ended")


class _Cancelled(Exception):
    """The failure of a step whose task was ended from outside."""


def end_group(process: subprocess.Popen[str], patience: float = PATIENCE) -> None:
    """End a process and everything it started: first with SIGTERM, then with SIGKILL."""
    if process.poll() is None:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # anything it left running
    process.wait()


def clear_behind(found: Attempted | None) -> None:
    """Remove the log of a driver that is known to be over."""
    if found is not None and found.application is not None:
        driver = SparkDriver.of(found.application.about)
        if driver is not None and driver.is_gone:
            _remove(Path(driver.lines))


def _remove(lines: Path) -> None:
    if lines.parent.name.startswith(FOLDER) and lines.parent.parent == Path(gettempdir()):
        shutil.rmtree(lines.parent, ignore_errors=True)


def read_result(kept: str | None) -> object:
    """Parse the stored result of a step."""
    return None if kept is None else json.loads(kept)


def _where(driver: SparkDriver) -> tuple[str, int, str]:
    return driver.id, driver.pid, driver.machine.partition("/")[0]
