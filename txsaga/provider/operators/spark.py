"""
A step that runs a Spark program: a separate process joins the flow and does the step with its own session.

    SparkStep(task_id="ledger", program="spark_jobs/ledger.py", arguments={"topic": "transfers"})

The task starts that process, shows its progress in the log, and waits. With a local master they end together: the
process sees the end of its standard input, and its JVM ends with it. On a cluster it outlives its task, and the next
attempt joins it. If it is forgotten on a lost machine, the next attempt supersedes it: what it still writes is never
published (R4).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from txsaga.errors import ConfigError, LakeMissing
from txsaga.flows.declaration import DeclaredStep
from txsaga.flows.step_records import FlowStepState
from txsaga.provider.drivers import FOLDER, REFUSED, StepDriver, clear_behind, end_group, read_result
from txsaga.provider.operators.flow_task import FlowOperator, JoinedFlow
from txsaga.provider.reference import step_name_of
from txsaga.provider.results import MAX_RESULT, find_result, keep_result, result_limit

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
            raise ConfigError(f"reattach of step {self.task_id!r} is {reattach!r}; say True or False, or leave it out")
        self.reattach = reattach
        self._process: subprocess.Popen[str] | None = None
        self._driver: StepDriver | None = None

    def work(self, context: Context, flow: JoinedFlow) -> object:
        """Run the program, unless an earlier attempt has done the step."""
        from txsaga.spark.job import kept_place

        name = step_name_of(context["ti"])
        found = flow.flow.attempt(name)
        if found is not None and found.state is FlowStepState.DONE:
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
        """Return this task as a step of the flow's plan."""
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
        from txsaga.spark.job import HANDED_OVER

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
        said = [str(self._place(context)), *told, *master, *conf, "--flow", str(flow.txid), "--step", name]
        said += words
        if not self.submit:
            return [sys.executable, "-m", "txsaga.spark", *said]
        import importlib.util

        found = importlib.util.find_spec("pyspark"), importlib.util.find_spec("txsaga.spark.__main__")
        if found[0] is None or found[0].origin is None or found[1] is None or found[1].origin is None:
            raise ConfigError("Spark needs its package: pip install 'txsaga[spark]'")
        return [str(Path(found[0].origin).parent / "bin" / "spark-submit"), *master, *conf, found[1].origin, *said]

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
        raise ConfigError(f"there is no program {self.program} in {Path.cwd()}, {beside} or {beside.parent}")
