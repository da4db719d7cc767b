"""The same ten tasks as an airflow dag that is a message flow: two resources, one half message."""

from __future__ import annotations

from airflow.sdk import chain

from txsaga.provider import message_flow, publish, step


@message_flow(schedule=None, coordinated=True, resources={"a": "w5_a", "b": "w5_b"})
def w5_flow() -> None:
    """Insert in nine steps, publish in the tenth."""
    steps = [
        step.sql(
            f"step_{place}", "INSERT INTO w5 VALUES (:n)", on="ab"[place % 2], parameters={"n": place}, hold="journal"
        )
        for place in range(9)
    ]
    chain(*steps, publish("w5", {"all": "of it"}))


w5_flow()
