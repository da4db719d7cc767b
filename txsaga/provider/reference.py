"""
How the tasks of a run find their flow: a plain dict in the XCom of the task that began it, and names made of the run.

The reference is no state: the store alone says what became of the flow. A run keeps its key when it is cleared, so a
retry joins the same life, and a run that is cleared after a rollback opens the next epoch, or after a commit where its
flow may be amended.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any, TypedDict, cast
from urllib.parse import urlsplit

from airflow.sdk import BaseOperatorLink

from txsaga.config import AIRFLOW_NAME, AIRFLOW_URL
from txsaga.core.topic import MAX_NAME
from txsaga.errors import ConfigError
from txsaga.provider.resources import KeptResources

BEGIN = "begin"
"""The id of the task that begins a flow, unless a DAG says otherwise."""


class FlowReference(TypedDict):
    """What begin leaves for every other task of its flow."""

    txid: int
    id: str  # store and transaction, for people and links
    key: str
    epoch: int
    amends: str | None  # the id of what was committed under the key before
    group: str
    store: str  # the Airflow connection of the store
    coordinated: bool
    resources: dict[str, KeptResources]


def read_reference(found: object, task: str) -> FlowReference:
    """Check what an XCom gave; `task` is where it was looked for."""
    if isinstance(found, Mapping) and isinstance(found.get("txid"), int) and "store" in found:
        return cast(FlowReference, dict(found))
    raise ConfigError(
        f"task {task!r} of this run has begun no flow; put FlowBegin(task_id={task!r}) before this task, "
        "or name the task that begins it with flow=…"
    )


def group_of(dag: str) -> str:
    """Return the producer group of a DAG."""
    if len(dag) <= MAX_NAME:
        return dag
    return f"{dag[: MAX_NAME - 13]}-{hashlib.sha256(dag.encode()).hexdigest()[:12]}"


def this_airflow() -> str:
    """Return the name of the Airflow of this task, the same one that its engine has; nothing where none can be had."""
    from airflow.sdk.configuration import conf

    from txsaga.airflow_host.instance import airflow_name

    address = AIRFLOW_URL.of(os.environ) or str(conf.get("api", "base_url", fallback="") or "")
    return airflow_name(AIRFLOW_NAME.of(os.environ), address)


def run_name_of(ti: Any) -> str:  # a task instance
    """Return the name by which the host of a flow is asked about the run of a task (R5)."""
    from txsaga.airflow_host.instance import run_name

    return run_name(ti.dag_id, ti.run_id, this_airflow())


def key_of(ti: Any, airflow: str | None = None) -> str:  # a task instance
    """Return the key of the flow that a task begins in a run of its DAG."""
    run, step = _run_of(ti, airflow), step_name_of(ti)
    return run if step == BEGIN else f"{run}/{step}"


def clearing_of(run: Any) -> str:  # a run as its tasks see it
    """Return what tells one clearing of a run from the next, and from one of the same id that is made anew.

    A task that is tried again finds the same.
    """
    return f"cleared {run.clear_number or 0} times, started {run.start_date}"


def own_key_of(ti: Any) -> str:  # a task instance
    """Return the key of a transaction that a task has for itself."""
    return f"{_run_of(ti, None)}/{step_name_of(ti)}"


def step_name_of(ti: Any) -> str:  # a task instance
    """Return the name of the step that a task does."""
    return step_name(ti.task_id, -1 if ti.map_index is None else ti.map_index)


def _run_of(ti: Any, airflow: str | None) -> str:
    name = this_airflow() if airflow is None else airflow
    return f"{name}/{ti.run_id}" if name else str(ti.run_id)


def step_name(task: str, map_index: int) -> str:
    """Return the name of the step that a task does."""
    return f"{task}[{map_index}]" if map_index >= 0 else task


KEY = "return_value"


class TransactionLink(BaseOperatorLink):
    """A link to the transaction that a task began, decided or stored, among the XComs of that task.

    An end that rolled back hands nothing on: its link leads to the task that began the flow.
    """

    name = "Transaction"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return where the transaction can be looked at; nothing before it is begun."""
        from airflow.sdk.execution_time.xcom import XCom

        run = {"dag_id": ti_key.dag_id, "run_id": ti_key.run_id}
        if _names_one(XCom.get_value(ti_key=ti_key, key=KEY)):
            mapped = getattr(ti_key, "map_index", None)
            return _place(run, ti_key.task_id, "" if mapped is None or mapped < 0 else f"/mapped/{mapped}")
        begin = getattr(operator, "flow", None)
        if isinstance(begin, str) and _names_one(XCom.get_one(key=KEY, task_id=begin, **run)):
            return _place(run, begin)
        return ""


def _names_one(found: object) -> bool:
    return isinstance(found, dict) and found.get("txid") is not None


def _place(run: Mapping[str, str], task: str, part: str = "") -> str:
    return f"{_below()}/dags/{run['dag_id']}/runs/{run['run_id']}/tasks/{task}{part}/xcom"


def _below() -> str:
    """Return the path below which this Airflow is, where it has its host for itself nothing."""
    from airflow.sdk.configuration import conf

    return urlsplit(str(conf.get("api", "base_url", fallback="") or "")).path.rstrip("/")
