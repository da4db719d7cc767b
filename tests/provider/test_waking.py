"""When the trigger of an asset of messages fires, and when it waits for the runs that it woke."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import ErrorResponse, TriggerDagRun

import txsaga
from tests.provider.house import House
from tests.services.databases import fresh_name
from txsaga.provider import ConsumeStep
from txsaga.provider.operators.flow import WOKEN_BY_ASSET, wake_others
from txsaga.provider.triggers import WakeUpTrigger
from txsaga.provider.waits import Wait, WaitAnswer, WaitKind


def test_an_asset_fires_again_later_where_no_messages_were_added(monkeypatch: pytest.MonkeyPatch) -> None:
    made = WakeUpTrigger("orders", "billing", "txsaga_default", every=1.0)
    wait, now = Wait(kind=WaitKind.MESSAGES, topic="orders", group="billing"), [0.0]

    async def fired(*rounds: int) -> list[float]:
        async def stream() -> AsyncIterator[dict[Wait, WaitAnswer]]:
            for second, new in enumerate(rounds):
                now[0] = float(second)
                yield {wait: WaitAnswer(good=True, told="", value={"new": new})} if new else {}

        with monkeypatch.context() as patched:
            patched.setattr(time, "monotonic", lambda: now[0])
            return [now[0] async for _ in made.filter_shared_stream(stream())]

    assert asyncio.run(fired(9, 8, 7, 7, 6, 9, 0, 1)) == [0, 3, 5, 7]
    assert asyncio.run(fired(1, 1, 1, 1, 1, 1, 1)) == [0, 3, 6]
    assert asyncio.run(fired(1, 2, 3)) == [0, 1, 2]


class Comms:
    """Takes what a task says to Airflow, which knows some runs already."""

    def __init__(self, *known: str) -> None:
        self.known, self.started = set(known), list[str]()

    def send(self, asked: TriggerDagRun) -> ErrorResponse | None:
        """Start a run."""
        if asked.run_id in self.known:
            return ErrorResponse(error=ErrorType.DAGRUN_ALREADY_EXISTS)
        self.started.append(asked.run_id)
        return None


@pytest.mark.parametrize(
    ("active", "most", "known", "started"),
    [
        (1, 16, (), [0, 1]),
        (1, 2, (), [0]),
        (3, 16, (), []),
        (1, 16, ("woken__first__0",), [1, 2]),
        (2, 16, ("woken__first__0",), [1]),
        (1, 0, (), [0, 1]),
    ],
)
def test_a_run_starts_those_that_are_missing(
    house: House, monkeypatch: pytest.MonkeyPatch, active: int, most: int, known: tuple[str, ...], started: list[int]
) -> None:
    topic, comms = house.topic(fresh_name("burst"), "normal"), Comms(*known)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", comms, raising=False)
    with DAG("woken", schedule=None, max_active_runs=most) as dag:
        ConsumeStep(task_id="take", topics=topic, consumer_group="takers", batch=10)
    with txsaga.connect(house.home_url, roles=False, answering=False, env={}) as broker:
        broker.consumer("takers", [topic]).close()
        for number in range(25):
            broker.producer("sender").send(topic, str(number).encode())
        house.seen(topic)
        run = SimpleNamespace(run_type=WOKEN_BY_ASSET, run_id="first")
        ti = SimpleNamespace(get_dr_count=lambda dag_id, states: active)
        context: Any = {"dag": dag, "dag_run": run, "ti": ti}
        wake_others(context, broker)
        assert comms.started == [f"woken__first__{number}" for number in started]
        run.run_type = "manual"
        wake_others(context, broker)
        assert len(comms.started) == len(started)
