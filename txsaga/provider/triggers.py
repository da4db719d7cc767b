"""
What runs in the triggerer: one poll of each store per interval, for all sensors and assets that wait there.

All triggers of a store share one stream: one connection, and one statement per kind in a round. If the store is
unavailable, no wait ends: the next round polls it again. If a triggerer dies, no wait is lost: Airflow starts its
triggers elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.triggers.base import BaseEventTrigger, TaskFailedEvent, TaskSkippedEvent, TaskSuccessEvent, TriggerEvent

from txsaga.errors import ConfigError, TxSagaError
from txsaga.provider.connections import database_url, reach_evidence, store_url
from txsaga.provider.options import every, store_of
from txsaga.provider.waits import StorePoll, Wait, WaitAnswer, WaitKind, wait_of

if TYPE_CHECKING:
    from sqlalchemy import Engine

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
                    if answers := await asyncio.to_thread(looking.look, tuple(self._waits)):
                        yield answers
                except TxSagaError as away:
                    logger.warning("the store can't be polled now: %s", away)
                except Exception:  # whatever the error is, all waits go on
                    logger.exception("a poll of the store failed")
                await asyncio.sleep(interval)
        finally:
            if broker is not None:
                with suppress(TxSagaError):
                    broker.close()


WATCHES: dict[tuple[str, float], Watch] = {}


def watch_of(store: str, interval: float) -> Watch:
    """Return the watch of a store connection and interval."""
    return WATCHES.setdefault((store, interval), Watch())


PATIENCE = 20.0
"""Seconds to wait for an Airflow connection."""


class WaitTrigger(BaseEventTrigger):
    """Wait for one condition in a store, and end the task without a worker.

    Airflow sometimes marks a task that is resumed on a worker as failed although it succeeded.
    """

    def __init__(
        self, kind: str, target: Mapping[str, Any], store: str, interval: float | None = None, skips: bool = False
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.skips = skips  # skip the task instead of failing it
        self.kind, self.target, self.store, self.interval = kind, dict(target), store, every(interval)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what is needed to create it again."""
        names = ("kind", "target", "store", "interval", "skips")
        return f"{__name__}.{type(self).__name__}", {name: getattr(self, name) for name in names}

    def shared_stream_key(self) -> tuple[str, str, float]:
        """Return the key of the shared stream: one per store and interval."""
        return "txsaga", self.store, self.interval

    @classmethod
    async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncGenerator[Answers, None]:
        """Poll the store, once for all waiting triggers per round."""
        store, interval = kwargs["store"], every(kwargs.get("interval"))  # the first trigger opens it for all
        connection, loop = await BaseHook.aget_connection(store), asyncio.get_running_loop()

        def named(name: str) -> Any:  # returns a connection; runs in a thread
            return asyncio.run_coroutine_threadsafe(BaseHook.aget_connection(name), loop).result(PATIENCE)

        opened: list[Engine] = []
        try:
            async for answers in watch_of(store, interval).rounds(partial(_open, connection, named, opened), interval):
                yield answers
        finally:
            for engine in opened:
                engine.dispose()

    async def filter_shared_stream(self, stream: AsyncIterator[Answers]) -> AsyncIterator[TriggerEvent]:
        """Wait for the answer, then end the task with it."""
        wait = wait_of(self.kind, self.target)
        with watch_of(self.store, self.interval).waiting(wait):
            async for answers in stream:
                if (answer := answers.get(wait)) is not None:
                    self.log.info("%s", answer.told)
                    failed = TaskSkippedEvent if self.skips else TaskFailedEvent
                    yield (TaskSuccessEvent if answer.good else failed)(xcoms={"return_value": dict(answer.value)})
                    return

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait alone, where streams are not shared."""
        async with aclosing(self.open_shared_stream(self.serialize()[1])) as stream:
            async for event in self.filter_shared_stream(stream):
                yield event


def _open(connection: Any, named: Callable[[str], Any], opened: list[Engine]) -> Broker:
    """Open the store; register databases of evidence on demand."""
    import txsaga
    from txsaga.wiring.resources import resource_engine

    broker = txsaga.connect(store_url(connection), roles=False, answering=False)

    def register(name: str, connection: str) -> None:
        try:
            url = database_url(named(connection))
        except AirflowNotFoundException:
            raise ConfigError(f"Airflow connection {connection!r} does not exist") from None
        engine = resource_engine(url, f"connection {connection!r}")
        broker.register(name, engine)
        opened.append(engine)

    reach_evidence(broker, register)
    return broker


SELDOM = 30.0
AGAIN = 3
"""Multiplies the pause between events while no messages are added."""


class WakeUpTrigger(WaitTrigger):
    """Fires as long as messages wait for a group, not only when one arrives.

    Airflow merges the events of a burst and may lose one; a later round repeats it. While no messages are added it
    fires less often: the run that was woken starts others for what is left. If the only messages left are waiting for a
    retry, it fires rarely, since no run could claim them yet.
    """

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
