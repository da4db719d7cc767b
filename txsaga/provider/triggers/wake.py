"""
The trigger behind an asset of messages: it fires while messages wait, and not only when one comes.

Airflow makes one event of a burst, and may lose one; a later round repeats it. While nothing is added it has time: the
run that was woken starts others for what is left. Messages that only rest before they come again fire it seldom: nobody
could claim them now.
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
"""So many times the pause, where no messages were added."""


class WakeUpTrigger(WaitTrigger):
    """Fires again and again while a topic holds messages for a group."""

    def __init__(self, topic: str, group: str, store: str | None = None, every: float = 1.0, at_least: int = 1) -> None:
        target = {"topic": topic, "group": group, "at_least": at_least}
        super().__init__(WaitKind.MESSAGES.value, target, store_of(store))
        self.every = every

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Say how to make it again."""
        return f"{__name__}.{type(self).__name__}", {**self.target, "store": self.store, "every": self.every}

    async def filter_shared_stream(self, stream: AsyncIterator[Answers]) -> AsyncIterator[TriggerEvent]:
        """Fire while there is something to claim."""
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
