"""A sensor that waits for messages; it takes none, so whoever runs next still has to claim them."""

from __future__ import annotations

from typing import Any

from txsaga.provider.sensors.waiting import WaitSensor
from txsaga.provider.waits.kinds import Kind


class MessagesSensor(WaitSensor):
    """Waits until a topic holds messages that a consumer group has not had yet."""

    kind = Kind.MESSAGES

    def __init__(self, *, topic: str, group: str, at_least: int = 1, **options: Any) -> None:
        super().__init__(target={"topic": topic, "group": group, "at_least": at_least}, **options)
