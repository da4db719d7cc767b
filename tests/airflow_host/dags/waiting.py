"""An airflow dag of sensors: one asks back, many wait for its decision, an asset wakes another dag."""

from __future__ import annotations

from airflow.sdk import DAG, task

from txsaga.provider import CheckBackSensor, ConsumeStep, DecisionSensor, message_flow, messages_asset

WAITING = 20

with DAG("waiting", schedule=None, params={"tx": "1"}):
    CheckBackSensor(
        task_id="ask",
        transaction="{{ params.tx }}",
        checker="tests.airflow_host.checkers:from_file",
        interval=0.5,
        max_checks=1000,
    )
    for number in range(WAITING):
        DecisionSensor(task_id=f"wait_{number}", transaction="{{ params.tx }}")


@message_flow(schedule=[messages_asset("burst", group="burst-app")], catchup=False, max_active_runs=4)
def woken() -> None:
    """Take what is there."""
    take = ConsumeStep(task_id="take", topics="burst", consumer_group="burst-app", batch=100)

    @task
    def work(messages: list[dict[str, object]]) -> int:
        return len(messages)

    work(take.output)  # type: ignore[arg-type]  # what it gives


woken()
