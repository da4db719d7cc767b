"""Ten plain airflow tasks in a row, each one statement in a database: what the flow of the same is held against."""

from __future__ import annotations

from airflow.sdk import DAG, task

with DAG("w5_plain", schedule=None) as dag:

    @task
    def work(number: int, on: str) -> None:
        import os

        from sqlalchemy import create_engine, text

        engine = create_engine(os.environ[f"TXSAGA_RESOURCE_{on}"])
        with engine.begin() as connection:
            connection.execute(text("INSERT INTO w5 VALUES (:n)"), {"n": number})
        engine.dispose()

    before = None
    for place in range(10):
        one = work.override(task_id=f"step_{place}")(place, ("W5_A", "W5_B")[place % 2])
        if before is not None:
            before >> one
        before = one
