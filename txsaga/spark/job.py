"""
The job that a program for Spark works with, in a transaction of its own or in a step of a flow.

    def run(job: Job) -> dict[str, int]:
        rows = transform(job.messages("transfers"))
        return {"rows": job.append("bank.posting", rows, gate=expect("postings"))}

A job reads data as of one moment, and its writes are invisible before the decision. It decides nothing.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from txsaga.errors import ConfigError, UnknownTable
from txsaga.lake.gates import Gate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txsaga.broker import Broker
    from txsaga.flows.flow import Flow
    from txsaga.lake.table_writes import TableBranch
    from txsaga.messages.transaction import Transaction


ENTRY = "run"
Run = Callable[["Job"], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run of a program."""

    broker: Broker
    spark: SparkSession
    transaction: Transaction | Flow
    arguments: Mapping[str, str] = field(default_factory=dict)

    def argument(self, name: str, default: str | None = None) -> str:
        """Return an argument of the run."""
        value = self.arguments.get(name, default)
        if value is None:
            raise ConfigError(f"this job needs an argument {name!r}; pass {name}=…")
        return value

    def messages(self, topic: str) -> DataFrame:
        """Return the visible messages of a topic."""
        from txsaga.spark.messages import read

        return read(self.broker, self.spark, topic)

    @contextmanager
    def tables(self, *names: str) -> Iterator[Mapping[str, DataFrame]]:
        """Return tables as of one moment."""
        with self.broker.cut(tables=names, topics=()) as cut:
            frames = cut.spark(self.spark)
            yield {name: frames.table(name) for name in names}

    def is_there(self, name: str) -> bool:
        """Return whether a table exists."""
        try:
            with self.broker.cut(tables=[name], topics=()):
                return True
        except UnknownTable:
            return False

    def append(self, name: str, rows: DataFrame, *, gate: Gate | None = None) -> int:
        """Add rows to a table; return how many."""
        write = self.transaction.table(name).append(rows, gate=gate)
        return 0 if write is None else write.rows

    def overwrite(self, name: str, rows: DataFrame, *, gate: Gate | None = None) -> int:
        """Replace all rows of a table; return how many it has now."""
        write = self.transaction.table(name).overwrite(rows, gate=gate)
        return 0 if write is None else write.rows

    def branch(self, name: str, *, gate: Gate | None = None, rebase: bool = False) -> TableBranch:
        """Return a branch of a table: `with job.branch("bank.ledger") as ledger:`, `ledger.sql("MERGE …")`."""
        return self.transaction.table(name).branch(self.spark, gate=gate, rebase=rebase)

    def send(self, topic: str, frame: DataFrame) -> None:
        """Send the rows of a frame as messages."""
        from txsaga.spark.messages import send

        send(self.broker, self.transaction, topic, frame)


def found(said: str) -> Run:
    """Load the function of a program: `file.py`, `file.py:function`, or `module:function`."""
    place, colon, entry = said.rpartition(":") if not said.endswith(".py") else (said, "", "")
    place, entry = (place, entry) if colon else (said, ENTRY)
    function = getattr(_loaded(place), entry, None)
    if not callable(function):
        raise ConfigError(f"{place} has no function {entry!r}; write `def {entry}(job: Job) -> …`")
    return function  # type: ignore[no-any-return]


def _loaded(place: str) -> ModuleType:
    if not place.endswith(".py"):
        try:
            return importlib.import_module(place)
        except ImportError as error:
            raise ConfigError(f"program {place} can't be loaded: {error}") from error
    path = Path(place).resolve()
    if not path.is_file():
        raise ConfigError(f"program {place} does not exist; give the path of a file, or module:function")
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules.setdefault(path.stem, module)
    specification.loader.exec_module(module)
    return module


PATIENCE = 60.0
"""Seconds that a result waits to be stored by its task."""
HANDED_OVER = "txsaga: the result is handed over"
"""The line that announces a result."""
PAUSE = 0.02


def hand_over(result: object, place: Path, *, waits: bool) -> None:
    """Write a result; if a task waits for it, wait until the task has stored it."""
    fresh = place.with_name(f"{place.name}.{os.getpid()}")
    fresh.write_text(json.dumps(result, default=str), "utf-8")
    fresh.replace(place)
    if not waits:
        return
    sys.stdout.write(f"{HANDED_OVER}\n")
    sys.stdout.flush()
    until = time.monotonic() + PATIENCE
    while not kept_place(place).exists():
        if time.monotonic() > until:
            raise TimeoutError(f"the task has not kept the result in {PATIENCE:.0f} s; run the step again")
        time.sleep(PAUSE)


def kept_place(place: Path) -> Path:
    """Return the file by which a task confirms that it has stored a result."""
    return place.with_name(f"{place.name}.kept")
