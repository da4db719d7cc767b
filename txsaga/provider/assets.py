"""
Topics as Airflow knows them: as assets, and as queues of its common messaging.

A DAG scheduled by an asset is started while there are messages that its group has not yet received:

    @message_flow(schedule=[messages_asset("orders", group="billing")], …)

With common messaging, one trigger is for queues of every kind:

    MessageQueueTrigger(scheme="txsaga", topic="orders", group="billing")

An event only wakes the DAG. Airflow may lose events or merge several, so they are repeated while messages wait. The run
claims its messages from the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from txsaga.errors import ConfigError
from txsaga.provider.options import store_of

if TYPE_CHECKING:
    from airflow.sdk import Asset
    from airflow.triggers.base import BaseEventTrigger


SCHEME = "txsaga"


def messages_asset(topic: str, *, group: str, store: str | None = None, every: float = 1.0, at_least: int = 1) -> Asset:
    """Return the asset of a topic for a consumer group; it wakes its DAGs at most once in `every` seconds."""
    from airflow.sdk import Asset, AssetWatcher

    from txsaga.provider.triggers import WakeUpTrigger

    store = store_of(store)
    trigger = WakeUpTrigger(topic=topic, group=group, store=store, every=every, at_least=at_least)
    return Asset(
        name=f"{topic} for {group}",
        uri=f"{SCHEME}://{store}/{topic}/{group}",
        watchers=[AssetWatcher(name=f"{topic}-{group}", trigger=trigger)],
    )


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """Check that a URI is txsaga://CONNECTION/TOPIC or txsaga://CONNECTION/TOPIC/GROUP."""
    words = uri.path.strip("/").split("/")
    if not uri.netloc or not all(words) or len(words) > 2:
        raise ValueError(f"{uri.geturl()!r} is not an asset of txsaga; write txsaga://CONNECTION/TOPIC/GROUP")
    return uri


WRITE = "write {scheme}://CONNECTION/TOPIC/GROUP, or {scheme}://CONNECTION/TOPIC with group="


class TxSagaQueues:
    """Queue provider for txsaga topics.

    It has the interface that common messaging expects but does not import it: without the package it is never called.
    """

    scheme = SCHEME

    def scheme_matches(self, scheme: str) -> bool:
        """Return whether a scheme is ours."""
        return scheme == self.scheme

    def queue_matches(self, queue: str) -> bool:
        """Return whether a URI is ours."""
        return queue.startswith(f"{self.scheme}://")

    def trigger_class(self) -> type[BaseEventTrigger]:
        """Return the class of the trigger that wakes watchers."""
        from txsaga.provider.triggers import WakeUpTrigger

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
            raise ConfigError(f"{queue!r} says {', '.join(twice)} too; set it once")
        return found
