"""
How the tasks of a run find their flow: a dict in the XCom of the task that began it, and names built from the run.

The reference is not state: only the store knows the outcome of the flow. A run keeps its key when it is cleared, so a
retry joins the same transaction. A run cleared after a rollback opens the next epoch; so does one cleared after a
commit, if its flow may be amended.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any, TypedDict, cast
from urllib.parse import urlsplit

from airflow.sdk import BaseOperatorLink

from txsaga.airflow_host.instance import airflow_name, run_name
from txsaga.config import AIRFLOW_NAME, AIRFLOW_URL
from txsaga.core.topic import MAX_NAME
from txsaga.errors import ConfigError
from txsaga.provider.resources import StoredConnection

BEGIN = "begin"
"""The id of the task that begins a flow, unless a DAG sets another."""


class FlowReference(TypedDict):
    """What begin passes to all other tasks of its flow."""

    txid: int
    id: str  # store and transaction, for people and links
    key: str
    epoch: int
    amends: str | None  # the id of the transaction committed under the key before
    group: str
    store: str  # the Airflow connection of the store
    coordinated: bool
    resources: dict[str, StoredConnection]


def read_reference(found: object, task: str) -> FlowReference:
    """Validate an XCom value as a reference; `task` is the task it was read from."""
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
    """Return the name of this task's Airflow, the same as its engine uses; empty if none can be determined."""
    return airflow_name(AIRFLOW_NAME.of(os.environ), AIRFLOW_URL.of(os.environ) or _base_url())


def run_name_of(ti: Any) -> str:  # a task instance
    """Return the name by which check-back asks a flow's host about the run of a task (R5)."""
    return run_name(ti.dag_id, ti.run_id, this_airflow())


def key_of(ti: Any) -> str:  # a task instance
    """Return the key of the flow that a task begins in a run of its DAG."""
    return _run_of(ti) if step_name_of(ti) == BEGIN else own_key_of(ti)


def clearing_of(run: Any) -> str:  # a run as its tasks see it
    """Return text that differs between clearings of a run, and after a run is re-created under the same id.

    A retried task gets the same text.
    """
    return f"cleared {run.clear_number or 0} times, started {run.start_date}"


def own_key_of(ti: Any) -> str:  # a task instance
    """Return the key of a task's own transaction."""
    return f"{_run_of(ti)}/{step_name_of(ti)}"


def step_name_of(ti: Any) -> str:  # a task instance
    """Return the name of the step that a task does."""
    mapped = ti.map_index is not None and ti.map_index >= 0
    return f"{ti.task_id}[{ti.map_index}]" if mapped else str(ti.task_id)


def _run_of(ti: Any) -> str:
    name = this_airflow()
    return f"{name}/{ti.run_id}" if name else str(ti.run_id)


KEY = "return_value"
CONSOLE = "/txsaga"
"""Where the API server serves the console."""


class TransactionLink(BaseOperatorLink):
    """A link to the page of the transaction that the task began, decided or stored.

    An end that rolled back has no XCom: its link leads to what the task that began the flow has begun.
    """

    name = "Transaction"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the link to the transaction; empty before it is begun."""
        from airflow.sdk.execution_time.xcom import XCom

        found = _named(XCom.get_value(ti_key=ti_key, key=KEY))
        begin = getattr(operator, "flow", None)
        if not found and isinstance(begin, str):
            found = _named(XCom.get_one(key=KEY, task_id=begin, dag_id=ti_key.dag_id, run_id=ti_key.run_id))
        below = urlsplit(_base_url()).path.rstrip("/")  # empty if this Airflow has its host for itself
        return f"{below}{CONSOLE}/transactions/{found}" if found else ""


def _named(found: object) -> str:
    return str(found.get("id") or "") if isinstance(found, dict) else ""


def _base_url() -> str:
    from airflow.sdk.configuration import conf

    return str(conf.get("api", "base_url", fallback="") or "")
