"""
Parked transactions as required actions for people.

The sensor waits in the triggerer until a transaction is parked; then a person is asked about each.
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
    doc_md="Commit, roll back, check again, or later: the answer is recorded with its author and reason.",
):
    parked = ParkedSensor(task_id="wait_for_parked", timeout=timedelta(days=1), soft_fail=True)
    found = ListParked(task_id="list_parked")
    settle = SettleParked.partial(
        task_id="settle", defaults="Later", response_timeout=timedelta(hours=8)
    ).expand_kwargs(found.output)
    parked >> found >> settle
