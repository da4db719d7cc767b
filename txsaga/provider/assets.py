"""
Messages as assets: a DAG scheduled by one is started while there are messages that its group has not yet received.

    @message_flow(schedule=[messages_asset("orders", group="billing")], …)

An event of the asset only wakes the DAG. Airflow may lose events or merge several, so they are repeated while messages
wait. The run claims its messages from the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import SplitResult

from txsaga.provider.options import store_of

if TYPE_CHECKING:
    from airflow.sdk import Asset

SCHEME = "txsaga"


def messages_asset(topic: str, *, group: str, store: str | None = None, every: float = 1.0, at_least: int = 1) -> Asset:
    """Return the asset of a topic for a consumer group; it wakes its DAGs at most once in `every` seconds."""
    from airflow.sdk import Asset, AssetWatcher

    from txsaga.provider.triggers.wake import WakeUpTrigger

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
        raise ValueError(f"{uri.geturl()!r} is no asset of txsaga; write txsaga://CONNECTION/TOPIC/GROUP")
    return uri
