"""When the trigger of an asset of messages fires, and when it waits for the runs that it woke."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from txsaga.provider.triggers.wake import WakeUpTrigger
from txsaga.provider.waits.kinds import Answer, Kind, Wait


def test_an_asset_fires_again_later_where_no_messages_were_added(monkeypatch: pytest.MonkeyPatch) -> None:
    made = WakeUpTrigger("orders", "billing", "txsaga_default", every=1.0)
    wait, now = Wait(kind=Kind.MESSAGES, topic="orders", group="billing"), [0.0]

    async def fired(*rounds: int) -> list[float]:
        async def stream() -> AsyncIterator[dict[Wait, Answer]]:
            for second, new in enumerate(rounds):
                now[0] = float(second)
                yield {wait: Answer(good=True, told="", value={"new": new})} if new else {}

        with monkeypatch.context() as patched:
            patched.setattr(time, "monotonic", lambda: now[0])
            return [now[0] async for _ in made.filter_shared_stream(stream())]

    assert asyncio.run(fired(9, 8, 7, 7, 6, 9, 0, 1)) == [0, 3, 5, 7]
    assert asyncio.run(fired(1, 1, 1, 1, 1, 1, 1)) == [0, 3, 6]
    assert asyncio.run(fired(1, 2, 3)) == [0, 1, 2]
