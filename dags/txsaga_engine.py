"""
The engine of txsaga as an Airflow DAG, for where nobody runs `txsaga engine`: all roles, a minute at a time.

Switch it on only then; beside an engine it does no harm and no good.
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
    doc_md="Delivers messages, asks back, recovers, keeps partitions: what `txsaga engine` does all the time.",
):
    EngineRoles(task_id="roles", seconds=50, execution_timeout=timedelta(minutes=10))
