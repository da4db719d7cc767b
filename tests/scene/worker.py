"""A member of a group of the work style in a shop, and what is left behind of its work."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Unpack

import pytest

from tests.scene.shop import NEWS, Shop
from txsaga.consume.consumer import Consumer
from txsaga.consume.dead_letter import DeadLetter
from txsaga.core.message import MessageOptions

GROUP = "billing"


def wrote(shop: Shop, *texts: str, **options: Unpack[MessageOptions]) -> None:
    """Send plain messages, and give them their offsets."""
    for text in texts:
        shop.broker.producer("desk").send(NEWS, text.encode(), **options)
    shop.deliver()


def worker(shop: Shop, **options: object) -> Consumer:
    """Join the group."""
    return shop.broker.consumer(GROUP, [NEWS], **options)  # type: ignore[arg-type]


def bodies(shop: Shop) -> list[str]:
    """Return what another member gets now."""
    return [message.text() for message in worker(shop, member="another").receive()]


def letters(shop: Shop) -> Sequence[DeadLetter]:
    """Return the dead letters, newest first."""
    return shop.store.dead_letters.list(None, 100)


def told(caplog: pytest.LogCaptureFixture, level: int, words: str) -> bool:
    """Tell whether a log line of a level holds these words."""
    return any(
        record.levelno == level and record.name == logging.getLogger("txsaga").name and words in record.getMessage()
        for record in caplog.records
    )
