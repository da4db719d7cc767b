"""Takes away what was staged for tables and will never be published: an Airflow DAG, once a day."""

import pendulum
from airflow.sdk import DAG

from txsaga.provider import CollectStaged

with DAG(
    "txsaga_collect",
    schedule="17 3 * * *",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=True,
    tags=["txsaga", "system"],
    doc_md="Deletes staged files of rolled-back transactions and superseded attempts. Undecided ones are not touched.",
):
    CollectStaged(task_id="collect", retries=2)
