"""
The trigger of every sensor: it waits in a stream shared by all sensors of a store, and ends its task by itself.

It never resumes its task on a worker, because Airflow sometimes marks such a task as failed although it succeeded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.triggers.base import BaseEventTrigger, TaskFailedEvent, TaskSkippedEvent, TaskSuccessEvent, TriggerEvent

from txsaga.errors import ConfigError
from txsaga.provider.options import every
from txsaga.provider.reaching import reach_evidence
from txsaga.provider.triggers.watch import Answers, watch_of
from txsaga.provider.waits.kinds import wait_of

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from txsaga.broker import Broker

PATIENCE = 20.0
"""Seconds to wait for an Airflow connection."""


class WaitTrigger(BaseEventTrigger):
    """Wait for one condition in a store."""

    def __init__(
        self, kind: str, target: Mapping[str, Any], store: str, interval: float | None = None, skips: bool = False
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.skips = skips  # skip the task instead of failing it
        self.kind, self.target, self.store, self.interval = kind, dict(target), store, every(interval)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what is needed to create it again."""
        said = {"kind": self.kind, "target": self.target, "store": self.store, "interval": self.interval}
        said["skips"] = self.skips
        return f"{__name__}.{type(self).__name__}", said

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
                    xcoms: dict[str, Any] = {"return_value": dict(answer.value)}
                    self.log.info("%s", answer.told)
                    yield self._event(xcoms, good=answer.good)
                    return

    def _event(self, xcoms: dict[str, Any], *, good: bool) -> TriggerEvent:
        if good:
            return TaskSuccessEvent(xcoms=xcoms)
        return TaskSkippedEvent(xcoms=xcoms) if self.skips else TaskFailedEvent(xcoms=xcoms)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait alone, where streams are not shared."""
        async with aclosing(self.open_shared_stream(self.serialize()[1])) as stream:
            async for event in self.filter_shared_stream(stream):
                yield event


def _open(connection: Any, named: Callable[[str], Any], opened: list[Engine]) -> Broker:
    """Open the store; register databases of evidence on demand."""
    import txsaga
    from txsaga.provider.addresses import database_url, store_url
    from txsaga.wiring.resources import resource_engine

    broker = txsaga.connect(store_url(connection), roles=False, answering=False)

    def register(name: str, connection: str) -> None:
        try:
            url = database_url(named(connection))
        except AirflowNotFoundException:
            raise ConfigError(f"there is no Airflow connection {connection!r}") from None
        engine = resource_engine(url, f"connection {connection!r}")
        broker.register(name, engine)
        opened.append(engine)

    reach_evidence(broker, register)
    return broker
