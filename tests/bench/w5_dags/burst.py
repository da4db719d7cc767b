"""An airflow dag that messages wake: each run takes a hundred, writes each down, and wakes the next run."""

from __future__ import annotations

from txsaga.engine.flows.journal import Journal
from txsaga.provider import ConsumeStep, message_flow, messages_asset, step

TOPIC, GROUP = "w5_burst", "w5-burst"
arrived = messages_asset(TOPIC, group=GROUP)


@message_flow(schedule=[arrived], catchup=False, max_active_runs=4, coordinated=True, resources={"a": "w5_a"})
def w5_burst() -> None:
    """Take messages, and write down which."""
    take = ConsumeStep(task_id="take", topics=TOPIC, consumer_group=GROUP, batch=100, outlets=[arrived])

    @step.python(on="a", hold="journal")
    def work(journal: Journal, messages: list[dict[str, object]]) -> None:
        for each in messages:
            journal.execute("INSERT INTO w5_burst VALUES (:id)", {"id": each["id"]})

    work(take.output)


w5_burst()
