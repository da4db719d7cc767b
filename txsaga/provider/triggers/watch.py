"""
The waits on one store in this process, and the rounds in which the store is polled.

All triggers of a store share one watch: one connection, and one statement per kind in a round. If the store is
unavailable, no wait ends: the next round polls it again. If a triggerer dies, no wait is lost: Airflow starts its
triggers elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from txsaga.errors import TxSagaError
from txsaga.provider.waits.kinds import Wait, WaitAnswer
from txsaga.provider.waits.looking import StorePoll

if TYPE_CHECKING:
    from txsaga.broker import Broker

logger = logging.getLogger("txsaga")
Answers = Mapping[Wait, WaitAnswer]


class Watch:
    """The waits on one store."""

    def __init__(self) -> None:
        self._waits: Counter[Wait] = Counter()

    @contextmanager
    def waiting(self, wait: Wait) -> Iterator[None]:
        """Include a wait in the polls while the block runs."""
        self._waits[wait] += 1
        try:
            yield
        finally:
            self._waits[wait] -= 1
            if not self._waits[wait]:
                del self._waits[wait]

    async def rounds(self, open_broker: Callable[[], Broker], interval: float) -> AsyncIterator[Answers]:
        """Yield answers for ever; skip rounds without any."""
        broker: Broker | None = None
        looking: StorePoll | None = None
        try:
            while True:
                try:
                    if looking is None:
                        broker = await asyncio.to_thread(open_broker)
                        looking = StorePoll(broker)
                    answers = await asyncio.to_thread(looking.look, tuple(self._waits))
                except TxSagaError as away:
                    logger.warning("the store can't be looked at now: %s", away)
                    answers = {}
                except Exception:  # whatever the error is, all waits go on
                    logger.exception("a look at the store failed")
                    answers = {}
                if answers:
                    yield answers
                await asyncio.sleep(interval)
        finally:
            if broker is not None:
                with suppress(TxSagaError):
                    broker.close()


WATCHES: dict[tuple[str, float], Watch] = {}


def watch_of(store: str, interval: float) -> Watch:
    """Return the watch of a store connection and interval."""
    return WATCHES.setdefault((store, interval), Watch())
