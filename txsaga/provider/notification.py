"""
An Airflow notification as a message: `on_failure_callback=MessageNotifier(topic="trouble", body=…)`.

It is a plain message, visible at once and outside every flow. Never put work of a transaction into a callback: Airflow
may run it late, twice, or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseNotifier, Context

from txsaga.provider.ambient import AMBIENT
from txsaga.provider.options import store_of

GROUP = "airflow-notifications"


class MessageNotifier(BaseNotifier):
    """Send a message about a run or a task."""

    template_fields: Sequence[str] = ("topic", "body", "key")

    def __init__(
        self,
        *,
        topic: str,
        body: str | dict[str, Any] = "{{ dag_run.dag_id }}/{{ dag_run.run_id }}",
        key: str = "{{ dag_run.run_id }}",
        store: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.topic, self.body, self.key, self.store = topic, body, key, store_of(store)

    def notify(self, context: Context) -> None:
        """Send the message."""
        body = self.body if isinstance(self.body, str) else json.dumps(self.body)
        AMBIENT.broker(self.store).producer(GROUP).send(self.topic, body.encode(), key=self.key)
