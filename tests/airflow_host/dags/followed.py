"""An airflow dag whose last task may die behind its decision, and one that follows it by an asset."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import Any

from airflow.sdk import DAG, Asset, Context, task

from txsaga.provider import FlowBegin, FlowEnd, PythonStep, enclose
from txsaga.provider.reference import FlowReference

moved = Asset("moved")


class DyingEnd(FlowEnd):
    """An end that is killed behind its decision where its run asks for that."""

    def _committed(self, context: Context, reference: FlowReference) -> dict[str, object]:
        if (context["dag_run"].conf or {}).get("die"):
            os.kill(os.getpid(), signal.SIGKILL)
        return super()._committed(context, reference)


with DAG("followed", schedule=None):
    begin = FlowBegin(task_id="begin")
    PythonStep(task_id="works", python_callable=lambda: 1)
    enclose(begin, DyingEnd(task_id="end", outlets=[moved], retries=0))

with DAG("following", schedule=[moved], catchup=False):

    @task
    def told(triggering_asset_events: Mapping[Asset, list[Any]] | None = None) -> list[int]:
        """Say of which transactions."""
        assert triggering_asset_events is not None
        return [event.extra["txid"] for event in triggering_asset_events[moved]]

    told()
