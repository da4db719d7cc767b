"""
The engine as an Airflow DAG, for places where no process runs `txsaga engine`: all roles, once a minute.

Unpause it only there; where an engine runs, it changes nothing.
"""

from datetime import timedelta

import pendulum
from airflow.sdk import DAG

from txsaga.provider import EngineRoles

with DAG(
    "txsaga_engine",
    schedule=timedelta(minutes=1),
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=True,
    tags=["txsaga", "system"],
    doc_md="Publishes messages, checks undecided transactions, recovers branches: the work of `txsaga engine`.",
):
    EngineRoles(task_id="roles", seconds=50, execution_timeout=timedelta(minutes=10))
