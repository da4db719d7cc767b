"""
The Airflow plugin, for what a provider can't register: counters of flow ends, updated in the process of the task.

Airflow finds it through an entry point of the package; a copy in Airflow's plugins folder would be a duplicate, which
Airflow refuses. A listener is good for metrics, not for decisions: it is not called if its process dies.
"""

from __future__ import annotations

from typing import Any

from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin

from txsaga.provider import plugin as listener
from txsaga.provider.reference import CONSOLE, TransactionLink

END, ROLLED_BACK = "FlowEnd", "FlowRolledBack"
"""Compared by name, so that loading this for other kinds of tasks imports nothing more."""


@hookimpl
def on_task_instance_success(previous_state: Any, task_instance: Any) -> None:
    """Count a commit."""
    _count(task_instance, "committed")


@hookimpl
def on_task_instance_failed(previous_state: Any, task_instance: Any, error: Any) -> None:
    """Count a rollback; an end that merely could not reach its store has rolled back nothing."""
    if _is_a(error, ROLLED_BACK):
        _count(task_instance, "rolled_back")


def _count(task_instance: Any, what: str) -> None:
    if _is_a(getattr(task_instance, "task", None), END):
        from txsaga.provider.tracing import counted

        counted(f"flow.{what}", dag_id=task_instance.dag_id)


def _is_a(given: object, name: str) -> bool:
    return any(each.__name__ == name for each in type(given).__mro__)


_RUN = f"{CONSOLE}/run?dag={{DAG_ID}}&run={{RUN_ID}}"
VIEWS = [
    {"name": "Transactions", "href": f"{CONSOLE}/", "destination": "nav", "category": "browse", "url_route": "txsaga"},
    {"name": "Transaction", "href": _RUN, "destination": "dag_run", "url_route": "txsaga_run"},
    {"name": "Transaction", "href": _RUN, "destination": "task_instance", "url_route": "txsaga_task"},
]
"""The pages of the console, where they belong among Airflow's."""


class TxSagaPlugin(AirflowPlugin):
    """The listeners and links of txsaga."""

    name = "txsaga"
    listeners = [listener]  # noqa: RUF012  # declared like this in the base class
    operator_extra_links = [TransactionLink()]  # noqa: RUF012

    external_views = VIEWS

    @property
    def fastapi_apps(self) -> list[dict[str, object]]:  # type: ignore[override]  # only the API server asks for it
        """The console, which is imported when it is asked for."""
        from txsaga.provider.console import console

        return [{"app": console(), "url_prefix": CONSOLE, "name": "txsaga"}]
