"""Counts how the ends of flows went: metrics `txsaga.flow.committed` and `txsaga.flow.rolled_back`."""

from __future__ import annotations

from typing import Any

from airflow.listeners import hookimpl


@hookimpl
def on_task_instance_success(previous_state: Any, task_instance: Any) -> None:
    """Count a commit."""
    _count(task_instance, "committed")


@hookimpl
def on_task_instance_failed(previous_state: Any, task_instance: Any, error: Any) -> None:
    """Count a rollback."""
    _count(task_instance, "rolled_back")


def _count(task_instance: Any, what: str) -> None:
    task = getattr(task_instance, "task", None)
    if task is None or type(task).__name__ != "FlowEnd":
        return
    from airflow.sdk.observability.stats import incr

    incr(f"txsaga.flow.{what}", tags={"dag_id": task_instance.dag_id})
