"""An airflow dag of each way in which a run may end, or stand still, without a word of its flow's last task."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG, task

from txsaga.provider import message_flow, publish

SOON, LATER = timedelta(seconds=2), timedelta(seconds=35)
"""Leases: one is over at once, one only when its run is ended and deleted."""
LIMIT = timedelta(seconds=20)
LONGEST = 120.0


def ending(name: str, limit: timedelta | None = None, lease: timedelta = SOON) -> DAG:
    """Make a flow that sends a message, and waits then until somebody says go."""

    @message_flow(dag_id=name, schedule=None, lease=lease, dagrun_timeout=limit)
    def flow() -> None:
        @task
        def wait(run_id: str | None = None) -> None:
            go = Path(os.environ["TXSAGA_TEST_ANSWERS"]) / str(run_id)
            until = time.monotonic() + LONGEST
            while not go.exists() and time.monotonic() < until:
                time.sleep(0.1)

        publish("ended", name) >> wait()

    return flow()


timed_out = ending("timed_out", LIMIT)
deleted = ending("deleted", LIMIT, LATER)
paused = ending("paused")
