"""
Topics as queues of Airflow's common messaging: one trigger for queues of every kind.

    MessageQueueTrigger(scheme="txsaga", topic="orders", group="billing")

The trigger is that of `messages_asset`, so its events are only wake-ups too. This class has the interface that the
common messaging package expects but does not import it: without the package it is listed and never called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from txsaga.errors import ConfigError
from txsaga.provider.assets import SCHEME

if TYPE_CHECKING:
    from airflow.triggers.base import BaseEventTrigger

WRITE = "write {scheme}://CONNECTION/TOPIC/GROUP, or {scheme}://CONNECTION/TOPIC with group="


class TxSagaQueues:
    """Queue provider for txsaga topics."""

    scheme = SCHEME

    def scheme_matches(self, scheme: str) -> bool:
        """Return whether a scheme is ours."""
        return scheme == self.scheme

    def queue_matches(self, queue: str) -> bool:
        """Return whether a URI is ours."""
        return queue.startswith(f"{self.scheme}://")

    def trigger_class(self) -> type[BaseEventTrigger]:
        """Return the class of the trigger that wakes watchers."""
        from txsaga.provider.triggers.wake import WakeUpTrigger

        return WakeUpTrigger

    def trigger_kwargs(self, queue: str, **said: object) -> dict[str, object]:
        """Return the trigger arguments that a URI contains; the caller passes on the others, given in `said`."""
        uri = urlsplit(queue)
        words = uri.path.strip("/").split("/")
        if not uri.netloc or not all(words) or len(words) > 2 or (len(words) == 1 and "group" not in said):
            raise ConfigError(f"{queue!r} names no topic as a group sees it; {WRITE.format(scheme=self.scheme)}")
        found: dict[str, object] = {"store": uri.netloc, "topic": words[0]}
        if len(words) == 2:
            found["group"] = words[1]
        if twice := sorted(found.keys() & said.keys()):
            raise ConfigError(f"{queue!r} says {', '.join(twice)} too; say it once")
        return found
