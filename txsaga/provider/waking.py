"""
Start more runs of a DAG that messages woke: one for each batch that is left, all at once.

Airflow starts about one run per second from a watcher's events, however much is waiting: the last of ten batches would
wait ten seconds although workers are idle. So a run that finds more messages than it takes starts the others itself, up
to its DAG's `max_active_runs`. If that fails, the watcher wakes them one after another.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from txsaga.provider.reference import group_of
from txsaga.provider.waits.kinds import Wait, WaitKind
from txsaga.provider.waits.looking import StorePoll

if TYPE_CHECKING:
    from txsaga.broker import Broker

logger = logging.getLogger(__name__)

WOKEN_BY_ASSET = "asset_triggered"
"""The type of a run that a watcher woke; the runs started here have another type and start no others."""
ACTIVE = ["queued", "running"]


def wake_others(context: Context, broker: Broker) -> None:
    """Start runs for the messages beyond this run's batches, unless enough runs are already active."""
    if context["dag_run"].run_type != WOKEN_BY_ASSET:
        return
    try:
        needed = max(_needed(context["dag"], broker), default=1)
        if needed > 1:
            _start(context, needed)
    except Exception as reason:  # noqa: BLE001  # nothing depends on it
        logger.warning("no further run is started for the messages that wait, their watcher wakes it: %s", reason)


def _needed(dag: Any, broker: Broker) -> Iterator[int]:
    """Yield, for each task that takes messages, how many runs the waiting messages would fill."""
    from txsaga.provider.operators.consume import ConsumeStep

    looking = StorePoll(broker)
    for task in dag.tasks:
        if isinstance(task, ConsumeStep):
            group = task.consumer_group or group_of(dag.dag_id)
            waits = [Wait(kind=WaitKind.MESSAGES, topic=topic, group=group) for topic in task.topics]
            waiting = sum(answer.value.get("new", 0) for answer in looking.look(waits).values())
            yield -(-waiting // task.batch)


def _start(context: Context, needed: int) -> None:
    """Start as many runs as are missing; a run that an earlier attempt started is not started again."""
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import ErrorResponse, TriggerDagRun

    dag, run = context["dag"], context["dag_run"]
    missing = min(needed, dag.max_active_runs or needed) - context["ti"].get_dr_count(dag.dag_id, states=ACTIVE)
    for number in range(needed):
        if missing < 1:
            return
        started = TriggerDagRun(dag_id=dag.dag_id, run_id=f"woken__{run.run_id}__{number}")
        missing -= not isinstance(task_runner.SUPERVISOR_COMMS.send(started), ErrorResponse)
