"""
The trigger of a messages asset: it fires as long as messages wait, not only when one arrives.

Airflow merges the events of a burst and may lose one; a later round repeats it. While no messages are added it fires
less often: the run that was woken starts others for what is left. If the only messages left are waiting for a retry, it
fires rarely, since no run could claim them yet.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import TriggerEvent

from txsaga.provider.options import store_of
from txsaga.provider.triggers.wait import WaitTrigger
from txsaga.provider.triggers.watch import Answers, watch_of
from txsaga.provider.waits.kinds import WaitKind, wait_of

SELDOM = 30.0
AGAIN = 3
"""Multiplies the pause between events while no messages are added."""


class WakeUpTrigger(WaitTrigger):
    """Fires repeatedly while a topic holds messages for a group."""

    def __init__(self, topic: str, group: str, store: str | None = None, every: float = 1.0, at_least: int = 1) -> None:
        target = {"topic": topic, "group": group, "at_least": at_least}
        super().__init__(WaitKind.MESSAGES.value, target, store_of(store))
        self.every = every

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what is needed to create it again."""
        return f"{__name__}.{type(self).__name__}", {**self.target, "store": self.store, "every": self.every}

    async def filter_shared_stream(self, stream: AsyncIterator[Answers]) -> AsyncIterator[TriggerEvent]:
        """Fire while there are messages to claim."""
        wait, fired, least = wait_of(self.kind, self.target), float("-inf"), 0
        with watch_of(self.store, self.interval).waiting(wait):
            async for answers in stream:
                answer = answers.get(wait)
                if answer is None or not answer.good:
                    least = 0
                    continue
                new = int(answer.value["new"])
                least = min(least, new)
                pause = self.every * (1 if new > least else AGAIN) if new else SELDOM
                if time.monotonic() - fired >= pause:
                    fired, least = time.monotonic(), new
                    yield TriggerEvent(dict(answer.value))  # type: ignore[no-untyped-call]
