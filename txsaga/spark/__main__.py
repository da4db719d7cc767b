"""
Running a program for Spark: `python -m txsaga.spark PROGRAM [NAME=VALUE …]`, in a transaction, or in a step of a flow.

    python -m txsaga.spark spark_jobs/ledger.py --key night-2025-03-03 topic=transfers
    python -m txsaga.spark spark_jobs/ledger.py --flow 17 --step ledger topic=transfers

The store is set by the environment (TXSAGA_URL). The session belongs to this process, and its JVM ends with it. If it
dies, nothing is visible; the next try takes its place, and what an abandoned one still writes no longer counts.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import txsaga
from txsaga.broker import Broker
from txsaga.core.decision import LocalState
from txsaga.errors import InDoubt, OutcomeUnknown, TxSagaError
from txsaga.flows.flow import Flow
from txsaga.spark.application import StepTaken, checking, detached
from txsaga.spark.job import Job, Run, found, hand_over
from txsaga.spark.sessions import application_id, quiet, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def telling(spark: SparkSession) -> AbstractContextManager[None]:
    """Tell the running stages of a session while the block runs, whenever they have changed."""
    context: Any = getattr(spark, "sparkContext", None)  # a Connect client has none
    told = ""

    def look(_: object) -> None:
        nonlocal told
        said = "" if context is None else stages(context.statusTracker())
        if said and said != told:
            _tell(said)
            told = said

    return checking(look)


def stages(tracker: Any) -> str:
    """Describe the running stages."""
    found = [info for each in sorted(tracker.getActiveStageIds()) if (info := tracker.getStageInfo(each)) is not None]
    return ", ".join(f"stage {each.stageId}: {each.numCompletedTasks} of {each.numTasks} tasks" for each in found)


REFUSED = 3
"""The exit status if txsaga refused the program for good: its last line gives the reason."""
TRY_AGAIN = 75
"""The exit status if another try may succeed: a store or a warehouse is unavailable."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a program."""
    said = _parser().parse_intermixed_args(arguments)
    if said.with_parent:
        Thread(target=_end_with_parent, daemon=True).start()
    try:
        program = found(said.program)
        with txsaga.connect(warehouse=said.warehouse, roles=False, answering=False) as broker:
            result = _run(broker, program, said)
    except TxSagaError as refused:
        _tell(f"{type(refused).__name__}: {refused}")
        return TRY_AGAIN if refused.retryable or isinstance(refused, InDoubt | OutcomeUnknown) else REFUSED
    except StepTaken as taken:
        _tell(str(taken))
        return TRY_AGAIN
    if said.result is not None and said.flow is None:
        hand_over(result, said.result, waits=False)
    _tell(f"done: {json.dumps(result, default=str)}")
    return 0


def _run(broker: Broker, program: Run, said: argparse.Namespace) -> object:
    conf = dict(each.partition("=")[::2] for each in said.conf)
    spark = session(broker, said.master, app=said.step or Path(said.program).stem, conf=conf)
    _tell(f"session {application_id(spark)} on {quiet(spark)}")
    given = dict(each.partition("=")[::2] for each in said.arguments)
    try:
        with telling(spark):
            if said.flow is None:
                producer = broker.producer(said.group, checker=lambda question: LocalState.UNKNOWN)
                with producer.transaction(key=said.key) as transaction:
                    return program(Job(broker=broker, spark=spark, transaction=transaction, arguments=given))
            with broker.flow(said.flow) as flow:
                job = Job(broker=broker, spark=spark, transaction=flow, arguments=given)
                return _step(flow, lambda: program(job), said, application_id(spark))
    finally:
        spark.stop()


def _step(flow: Flow, program: Callable[[], object], said: argparse.Namespace, application: str) -> object:
    if said.detached is not None:
        return detached(flow, program, said, application, _tell)
    with flow.step(said.step):
        result = program()
        if said.result is not None:
            hand_over(result, said.result, waits=said.with_parent)
        return result


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m txsaga.spark", description="Run a program for Spark.")
    parser.add_argument("program", help="file.py, file.py:function or module:function")
    parser.add_argument("arguments", nargs="*", metavar="NAME=VALUE", help="arguments of the program")
    parser.add_argument("--key", help="key of its transaction: a second run with the same key does nothing")
    parser.add_argument("--group", default="spark", help="of its transaction")
    parser.add_argument("--flow", type=int, metavar="TXID", help="run it in a step of this flow")
    parser.add_argument("--step", help="the name of that step")
    parser.add_argument("--master", help="master of the session. Default: TXSAGA_SPARK_MASTER, or local[*]")
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of the session")
    parser.add_argument("--warehouse", help="where new tables are created. Default: TXSAGA_WAREHOUSE")
    parser.add_argument("--result", type=Path, help="file for the return value of the program, as JSON")
    parser.add_argument("--max-result", type=int, help="maximum size of the return value in bytes")
    parser.add_argument("--detached", type=Path, metavar="LINES", help="outlive the parent; write output to this file")
    parser.add_argument("--with-parent", action="store_true", help="end when the standard input is closed")
    return parser


def _end_with_parent() -> None:
    """Wait for the end of the parent, then kill this process and all that it started."""
    while os.read(0, 4096):
        continue
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
