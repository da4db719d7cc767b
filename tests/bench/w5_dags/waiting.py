"""An airflow dag of two hundred sensors that wait for one decision."""

from __future__ import annotations

from airflow.sdk import DAG

from txsaga.provider import DecisionSensor

with DAG("w5_waiting", schedule=None, params={"tx": "1"}, max_active_tasks=400):
    for number in range(200):
        DecisionSensor(task_id=f"wait_{number}", transaction="{{ params.tx }}")
