"""A dag without txsaga: airflow itself is what is tried."""

from __future__ import annotations

from airflow.sdk import dag, task


@dag(schedule=None)
def two_tasks() -> None:
    """Hand a number from one task to the next."""

    @task(retries=2, retry_delay=1)
    def one() -> int:
        return 1

    @task(retries=2, retry_delay=1)
    def add(number: int) -> int:
        return number + 1

    add(one())  # type: ignore[arg-type]  # what one gives


two_tasks()
