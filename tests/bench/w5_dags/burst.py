"""An airflow dag that messages wake: each run takes a hundred, and writes each down."""

from __future__ import annotations

from txsaga.flows.journal import Journal
from txsaga.provider import ConsumeStep, message_flow, messages_asset, step

TOPIC, GROUP = "w5_burst", "w5-burst"


@message_flow(schedule=[messages_asset(TOPIC, group=GROUP)], catchup=False, coordinated=True, resources={"a": "w5_a"})
def w5_burst() -> None:
    """Take messages, and write down which."""
    take = ConsumeStep(task_id="take", topics=TOPIC, consumer_group=GROUP, batch=100)

    @step.python(on="a", hold="journal")
    def work(journal: Journal, messages: list[dict[str, object]]) -> None:
        for each in messages:
            journal.execute("INSERT INTO w5_burst VALUES (:id)", {"id": each["id"]})

    work(take.output)


w5_burst()
