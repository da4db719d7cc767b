"""
The Airflow plugin: what a provider can't register. Counters of ends of flows, heard in the process of the task.

Airflow finds it by an entry point of the package; a copy in its folder of plugins would be a second one, which it
refuses. A listener is good for figures, not for decisions: it is not called when its process dies.
"""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from txsaga.provider import listener
from txsaga.provider.links import TransactionLink


class TxSagaPlugin(AirflowPlugin):
    """Listeners and links of txsaga."""

    name = "txsaga"
    listeners = [listener]  # noqa: RUF012  # as its base has it
    operator_extra_links = [TransactionLink()]  # noqa: RUF012
