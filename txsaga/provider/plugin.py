"""
The Airflow plugin: what a provider can't register. Counters of ends of flows, heard in the process of the task.

Airflow finds it by an entry point of the package; a copy in its folder of plugins would be a second one, which it
refuses. A listener is good for figures, not for decisions: it is not called when its process dies.
"""

from __future__ import annotations

from typing import Any

from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin

from txsaga.provider import plugin as listener
from txsaga.provider.reference import TransactionLink

END, ROLLED_BACK = "FlowEnd", "FlowRolledBack"
"""Known by name: whoever loads this for tasks of another kind loads nothing more."""


@hookimpl
def on_task_instance_success(previous_state: Any, task_instance: Any) -> None:
    """Count a commit."""
    _count(task_instance, "committed")


@hookimpl
def on_task_instance_failed(previous_state: Any, task_instance: Any, error: Any) -> None:
    """Count a rollback; an end that only could not reach its store has rolled back nothing."""
    if _is_a(error, ROLLED_BACK):
        _count(task_instance, "rolled_back")


def _count(task_instance: Any, what: str) -> None:
    if _is_a(getattr(task_instance, "task", None), END):
        from txsaga.provider.tracing import counted

        counted(f"flow.{what}", dag_id=task_instance.dag_id)


def _is_a(given: object, name: str) -> bool:
    return any(each.__name__ == name for each in type(given).__mro__)


class TxSagaPlugin(AirflowPlugin):
    """Listeners and links of txsaga."""

    name = "txsaga"
    listeners = [listener]  # noqa: RUF012  # as its base has it
    operator_extra_links = [TransactionLink()]  # noqa: RUF012
