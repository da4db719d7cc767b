"""
What check-back gave up, as required actions for people: an Airflow DAG.

It waits in the triggerer until something is parked, then asks about each.
"""

from datetime import timedelta

import pendulum
from airflow.sdk import DAG

from txsaga.provider import ListParked, ParkedSensor, SettleParked

with DAG(
    "txsaga_doubt",
    schedule="@continuous",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=True,
    tags=["txsaga", "system"],
    doc_md="Commit, roll back, ask again, or later: the answer is kept with who gave it and why.",
):
    parked = ParkedSensor(task_id="wait_for_trouble", timeout=timedelta(days=1), soft_fail=True)
    trouble = ListParked(task_id="list_parked")
    settle = SettleParked.partial(
        task_id="settle", defaults="Later", response_timeout=timedelta(hours=8)
    ).expand_kwargs(trouble.output)
    parked >> trouble >> settle
