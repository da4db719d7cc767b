"""An airflow dag whose step is done by a driver that outlives its task; it waits until somebody says go."""

from __future__ import annotations

import os
from datetime import timedelta

from tests.provider.spark_task import LightStep
from tests.provider.waiting_driver import STEP
from txsaga.provider import message_flow

LightStep.folder = os.environ["TXSAGA_TEST_ANSWERS"]


@message_flow(schedule=None)
def driving() -> None:
    """Drive."""
    LightStep(task_id=STEP, program="anything", reattach=True, retries=3, retry_delay=timedelta(0))


driving()
