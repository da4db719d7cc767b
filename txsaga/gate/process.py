"""
The gate process as its parent sees it: started in advance, called through files, ended with its parent.

One process is kept for the next question, since its imports take longer than most suites. It ends by itself when its
parent is gone or when no question arrives for a while. If it dies or times out, the answer is no.
"""

from __future__ import annotations

import atexit
import json
import os
import pickle
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from threading import Lock
from typing import Any

from txsaga.core.failure import on_failure
from txsaga.core.forking import at_fork
from txsaga.core.message import Message
from txsaga.errors import ConfigError
from txsaga.lake.gates import Subject

KINDS = "give an Arrow table, a pandas or Spark DataFrame, mappings, or messages"


def written(subject: Subject, folder: Path) -> dict[str, object]:
    """Return where the rows are stored, after writing them to a file if they are only in memory."""
    if subject.table is not None:
        from pyiceberg.io import load_file_io
        from pyiceberg.table import FileScanTask

        io, files = load_file_io(dict(subject.access), subject.table.location), [*map(FileScanTask, subject.files)]
        return {"table": subject.table, "io": io, "files": files, "columns": subject.table.schema().column_names}
    table = as_arrow(subject.rows, subject.about)
    import pyarrow.parquet as pq

    pq.write_table(table, f"{folder}/rows.parquet")
    return {"rows": f"{folder}/rows.parquet", "columns": table.column_names}


def as_arrow(rows: Any, about: str) -> Any:
    """Return rows as an Arrow table."""
    import pyarrow as pa

    if isinstance(rows, pa.Table):
        return rows
    if hasattr(rows, "toArrow"):
        return rows.toArrow()
    if hasattr(rows, "to_feather"):
        return pa.Table.from_pandas(rows, preserve_index=False)
    if not isinstance(rows, Iterable) or isinstance(rows, str | bytes):
        raise ConfigError(f"{type(rows).__name__} can't be judged as {about}; {KINDS}")
    listed = [_mapping(each, about) for each in rows]
    names = dict.fromkeys(name for each in listed for name in each)
    return pa.table({name: [each.get(name) for each in listed] for name in names})


def _mapping(row: Any, about: str) -> Mapping[str, object]:
    if isinstance(row, Message):
        return _columns(row)
    if hasattr(row, "_mapping"):
        return dict(row._mapping)
    if isinstance(row, Mapping):
        return row
    raise ConfigError(f"{type(row).__name__} can't be judged as a row of {about}; {KINDS}")


def _columns(message: Message) -> Mapping[str, object]:
    columns: dict[str, object] = {"key": message.key, "tag": message.tag, "body": message.body.decode(errors="replace")}
    try:
        said = json.loads(message.body)
    except ValueError:
        return columns
    return {**said, **columns} if isinstance(said, dict) else columns


QUIET = {"GX_ANALYTICS_ENABLED": "false", "PYTHONWARNINGS": "ignore"}
TAIL = 2_000
"""How many of the last bytes of a process's standard error are searched for its last line."""


class GateProcess:
    """One process that judges rows."""

    def __init__(self) -> None:
        self._told = tempfile.TemporaryFile()  # closed only when the process ends
        self._process = subprocess.Popen(
            [sys.executable, "-m", "txsaga.gate"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._told,
            env={**os.environ, **QUIET},
        )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Return whether the process is still running."""
        return self._process.poll() is None

    def ask(self, folder: Path, seconds: float) -> str | None:
        """Have the process answer the question in a folder; return an error message, or None."""
        try:
            assert self._process.stdin is not None and self._process.stdout is not None
            self._process.stdin.write(f"{folder}\n".encode())
            self._process.stdin.flush()
            if not select.select([self._process.stdout], [], [], seconds)[0]:
                return f"the gate did not answer within {seconds:g} s"
            if os.read(self._process.stdout.fileno(), 1):
                return None
        except BrokenPipeError:
            pass
        return f"the gate's process ended with {self._process.wait(60)}: {self._last_words()}"

    def end(self) -> None:
        """Kill the process and close its streams."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._told):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    def _last_words(self) -> str:
        self._told.seek(0, os.SEEK_END)
        self._told.seek(max(0, self._told.tell() - TAIL))
        lines = self._told.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no output"


class _IdleProcesses:
    """The process kept for the next question."""

    def __init__(self) -> None:
        self._lock, self._waiting = Lock(), list[GateProcess]()
        self._parents: list[GateProcess] = []

    def take(self) -> GateProcess:
        with self._lock:
            found = self._waiting.pop() if self._waiting else None
        if found is not None and not found.alive:
            found.end()
            found = None
        return found or GateProcess()

    def give_back(self, process: GateProcess) -> None:
        with self._lock:
            if not self._waiting:
                self._waiting.append(process)
                return
        process.end()

    def stop(self) -> None:
        """End the kept process."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.end()

    def leave_to_parent(self) -> None:
        """Drop the parent's processes in a forked child, but keep references: garbage-collecting their pipes warns."""
        self._lock, self._parents, self._waiting = Lock(), [*self._parents, *self._waiting], []


_idle = _IdleProcesses()
at_fork(_idle.leave_to_parent)


def warm() -> None:
    """Start a process if none is kept, so that its imports are done before the first question."""
    _idle.give_back(_idle.take())


stop = _idle.stop
atexit.register(stop)


def ask(request: Mapping[str, Any], subject: Subject, limit: timedelta) -> dict[str, Any]:
    """Return a verdict; if there is none, it holds the reason as `error` and `why`."""
    with tempfile.TemporaryDirectory(prefix="txsaga-gate-") as name:
        folder = Path(name)
        told = {**request, "folder": name, "count": subject.count}
        question = {**json.loads(json.dumps(told, default=str)), **written(subject, folder)}
        (folder / "question").write_bytes(pickle.dumps(question))  # with types that JSON hasn't; the folder is private
        process = _idle.take()
        with on_failure(process.end):
            wrong = process.ask(folder, limit.total_seconds())
        if wrong is None:
            _idle.give_back(process)
            return dict(json.loads((folder / "answer.json").read_text("utf-8")))
        process.end()
        return {"error": wrong, "why": wrong, "rows": subject.count}
